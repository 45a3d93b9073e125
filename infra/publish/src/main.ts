// `npm run pack [-- <folder>]`: see pack.ts. The folder is `dist` of the checkout unless it is named.
import { resolve } from "node:path";
import { pack } from "./pack.ts";

for (const tarball of await pack(resolve(process.argv[2] ?? "dist"))) console.log(tarball);
