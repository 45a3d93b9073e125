import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { configTypes } from "./config-types.ts";
import { sdkTypes } from "./sdk-types.ts";

it.each([
  ["sdk/src/wire-types.ts", sdkTypes],
  ["tool-kit/src/config-types.ts", configTypes],
])(
  "the types in packages/%s are those of the schemas: `npm run sdk-types` writes them",
  async (path, types) => {
    const written = await readFile(new URL(`../../../packages/${path}`, import.meta.url), "utf8");
    expect(written).toBe(types());
  },
);
