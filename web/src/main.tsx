import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Problem, startLive } from "@/api";
import { router } from "@/router";
import { applyTheme } from "@/theme";
import "@/style.css";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      // What the server refuses it refuses again; what did not reach it is tried once more.
      retry: (failures, error) => failures < 2 && error instanceof Problem && error.status === 0,
      refetchOnWindowFocus: false,
      // The server is most often on the same machine: it is there also where the network is not.
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

applyTheme();
startLive(queries);
createRoot(document.getElementById("page") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
