export { SchemaChecks, type SchemaChecksOptions } from "./schema-checks.ts";
