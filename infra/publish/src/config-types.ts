import { ConfigInput } from "@larkline/process/config";
import { typesModule } from "./type-text.ts";

const heading =
  "// Written by `npm run sdk-types` from the schema of the configuration, for those who install the tool kit alone.";

/** packages/tool-kit/src/config-types.ts. */
export function configTypes(): string {
  return typesModule(heading, { ConfigInput });
}
