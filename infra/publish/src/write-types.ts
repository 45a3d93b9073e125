// `npm run sdk-types`: writes the types of what others install that are made from schemas.
import { writeFile } from "node:fs/promises";
import { configTypes } from "./config-types.ts";
import { sdkTypes } from "./sdk-types.ts";

await writeFile(new URL("../../../packages/sdk/src/wire-types.ts", import.meta.url), sdkTypes());
await writeFile(
  new URL("../../../packages/tool-kit/src/config-types.ts", import.meta.url),
  configTypes(),
);
