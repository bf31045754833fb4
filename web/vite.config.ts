import tailwind from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  plugins: [react(), tailwind()],
  resolve: { alias: { "@": here("./src") } },
  build: {
    // The server serves this folder. Each build replaces it; it is never committed.
    outDir: here("../src/shopfloor/server/page"),
    emptyOutDir: true,
    // The page's content security policy refuses data: URLs.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
  },
  server: {
    // For `npm run dev` beside a running `shopfloor up`.
    proxy: { "/api": "http://127.0.0.1:7420", "/login": "http://127.0.0.1:7420" },
  },
});
