import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { sdkTypes } from "./sdk-types.ts";

it("the types of the SDK are those of the schemas: `npm run sdk-types` writes them", async () => {
  const written = await readFile(new URL("../../../packages/sdk/src/wire-types.ts", import.meta.url), "utf8");
  expect(written).toBe(sdkTypes());
});
