import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Problem, startLiveStream } from "@/api";
import { router } from "@/router";
import { applyTheme } from "@/theme";
import "@/style.css";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 30_000,
      // A refused request would be refused again; retry only what did not reach the server.
      retry: (failures, error) => failures < 2 && error instanceof Problem && error.status === 0,
      refetchOnWindowFocus: false,
      // The server is usually on the same machine and reachable without a network.
      networkMode: "always",
    },
    mutations: { networkMode: "always" },
  },
});

applyTheme();
startLiveStream(queries);
createRoot(document.getElementById("page") as HTMLElement).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
