import fs from "node:fs";
import { registerHooks, syncBuiltinESMExports } from "node:module";
import { mutants, withMutant, type Mutant } from "../mutants/table.ts";

/** From now on this process reads one file of the product with the bug of that name in it. The file stays as it is. */
export function putBugIn(name: string): void {
  const bug = mutants.find(({ id }) => id === name);
  if (bug === undefined) throw new Error(`no bug is called ${name}: see npm run mutants -- --list`);
  const url = new URL(`../../${bug.file}`, import.meta.url);
  if (url.pathname.endsWith(".lua")) putIntoScript(bug, url);
  else putIntoModule(bug, url);
}

function putIntoModule(bug: Mutant, { href }: URL): void {
  registerHooks({
    load: (url, context, next) => {
      const loaded = next(url, context);
      if (url.split("?")[0] !== href || loaded.source == null) return loaded;
      return {
        ...loaded,
        source: withMutant(Buffer.from(loaded.source as Uint8Array).toString(), bug),
      };
    },
  });
}

/** Scripts are read as files. */
function putIntoScript(bug: Mutant, { pathname }: URL): void {
  const read = fs.readFileSync;
  Object.assign(fs, {
    readFileSync: (...given: Parameters<typeof read>) => {
      const bytes = read(...given);
      const isScript = String(given[0]).endsWith(pathname);
      return isScript ? withMutant(bytes.toString(), bug) : bytes;
    },
  });
  syncBuiltinESMExports();
}
