// `npm run pack [-- <folder>]`: see pack.ts. The folder is `dist` of the checkout unless it is named.
import { spawnSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { pack } from "./pack.ts";

const folder = resolve(process.argv[2] ?? "dist");
for (const tarball of await pack(folder)) console.log(tarball);

const backend = fileURLToPath(new URL("../../python-runner/build_backend.py", import.meta.url));
const { error, status } = spawnSync("python3", [backend, folder], { stdio: "inherit" });
if (error !== undefined) {
  console.error(`The wheel of the Python package was not built: ${error.message}`);
}
process.exitCode = status ?? 1;
