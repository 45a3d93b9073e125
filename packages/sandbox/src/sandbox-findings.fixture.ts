import { probeTiers, type OpenSandboxOptions } from "./index.ts";

// Writes what the probes find, as whatever user this is. Argument: the options, as JSON.
const options = JSON.parse(process.argv[2] ?? "{}") as OpenSandboxOptions; // the test gives them
process.stdout.write(JSON.stringify(await probeTiers(options)));
