import tailwind from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  plugins: [react(), tailwind()],
  resolve: { alias: { "@": here("./src") } },
  build: {
    // The server serves this folder; it is made anew by each build and never committed.
    outDir: here("../src/shopfloor/server/page"),
    emptyOutDir: true,
    // What would be inlined as a data: address is refused by the page's own security policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2023",
  },
  server: {
    // `npm run dev` beside a running `shopfloor up`.
    proxy: { "/api": "http://127.0.0.1:7420", "/login": "http://127.0.0.1:7420" },
  },
});
