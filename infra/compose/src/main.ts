// `npm run compose-files -- [runner...]`: writes what infra/compose/compose.yaml names into .data/compose. To be run
// again after every change of .env and larkline.config.ts; it keeps the secrets that it has made.
import { deploymentFiles } from "./deployment-files.ts";
import { openFolder } from "./folder.ts";

const runners = process.argv.slice(2);
// A name may begin with a hyphen elsewhere; here such a word is an option, and there are none.
const strange = runners.find((name) => !/^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$/.test(name));
if (strange !== undefined) {
  console.error(
    `usage: npm run compose-files [-- <runner>...]; '${strange}' is no name of a runner`,
  );
  process.exit(2);
}
const { written, kept, save } = await openFolder("compose");
await save(deploymentFiles({ ...written, runners }, kept));
console.log("Written to .data/compose.");
