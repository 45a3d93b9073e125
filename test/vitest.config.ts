import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./longest-first.ts";

// Redis is not cleared between files: every test works under a namespace of its own.
export default defineConfig({
  root: fileURLToPath(new URL("..", import.meta.url)),
  test: {
    include: [
      "packages/*/src/**/*.test.ts",
      "apps/*/src/**/*.test.ts",
      "simulator/src/**/*.test.ts",
      "infra/**/*.test.ts",
      "test/**/*.test.ts",
    ],
    globalSetup: ["test/global-setup.ts", "test/system/seen.ts"],
    setupFiles: ["test/each-file.ts"],
    pool: "forks",
    isolate: false,
    // Some of the time tests wait for a process or a deadline of the product; more at once only slow each other down.
    maxWorkers: Math.min(8, Math.ceil(1.5 * availableParallelism())),
    sequence: { sequencer: LongestFirst },
    // Deadlines find what hangs; how fast a shared machine is today is no fact about the product.
    expect: { poll: { timeout: 60_000 } },
    testTimeout: 240_000,
    hookTimeout: 300_000,
  },
});
