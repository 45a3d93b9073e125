import type { ConfigInput } from "./config-types.ts";

export type { ConfigInput };

/** Gives `larkline.config.ts` its types: `export default defineConfig({ ... })`. */
export function defineConfig(input: ConfigInput): ConfigInput {
  return input;
}
