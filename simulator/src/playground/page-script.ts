import { fileURLToPath } from "node:url";
import { build } from "rolldown";

/** All scripts of the page as one. A bundle of the playground has it made before (infra/dev/bundle.mjs). */
export async function pageScript(): Promise<string> {
  const { output } = await build({
    input: fileURLToPath(new URL("page/app.tsx", import.meta.url)),
    platform: "browser",
    write: false,
  });
  return output[0].code;
}
