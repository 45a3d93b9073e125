// `npm run sdk-types`: writes packages/sdk/src/wire-types.ts.
import { writeFile } from "node:fs/promises";
import { sdkTypes } from "./sdk-types.ts";

await writeFile(new URL("../../../packages/sdk/src/wire-types.ts", import.meta.url), sdkTypes());
