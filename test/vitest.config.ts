import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

// Nobody clears Redis between files: every test works under a namespace of its own.
export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  test: {
    include: ["packages/*/src/**/*.test.ts", "apps/*/src/**/*.test.ts", "infra/**/*.test.ts", "test/**/*.test.ts"],
    globalSetup: ["test/redis-setup.ts"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
});
