import { fileURLToPath } from "node:url";

/** A folder for `NODE_COMPILE_CACHE` of processes that tests start: with compiled code, a start takes half the CPU. */
export const codeCache = fileURLToPath(
  new URL("../../../.data/test/compile-cache", import.meta.url),
);
