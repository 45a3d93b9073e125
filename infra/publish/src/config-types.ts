import { ConfigInput } from "@larkline/process/config";
import { fieldDocsOf } from "./field-docs.ts";
import { typesModule } from "./type-text.ts";

const heading =
  "// Written by `npm run sdk-types` from the schema of the configuration, for those who install the tool kit alone.";

/** packages/tool-kit/src/config-types.ts, with what the source says of each setting. */
export function configTypes(): string {
  const docs = fieldDocsOf(
    "process/src/config/*.ts",
    "agent/src/abilities/*/*.ts",
    "protocol/src/output-form.ts",
  );
  return typesModule(heading, { ConfigInput }, docs);
}
