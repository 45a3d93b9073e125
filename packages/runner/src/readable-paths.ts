import { existsSync, readdirSync, readFileSync, realpathSync, type Dirent } from "node:fs";
import { basename, dirname, join } from "node:path";
import { parserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";

/** The dependencies of a package that are needed of it; `alone` without what they need themselves. */
export type Needed = Readonly<Record<string, "whole" | "alone">>;

/**
 * What a module needs to be imported elsewhere: the files of its package, and the directories in which
 * Node finds what the package depends on. Nothing of the package itself whose name begins with a dot
 * is among them, so `.env` stays out. A file of no package comes alone. Default for what is needed: all dependencies.
 */
export function readablePaths(file: string, needed?: Needed): string[] {
  const real = realpathSync(file);
  const directory = packageOf(real);
  if (directory === undefined) return [real];
  const closure = new Closure();
  if (needed === undefined) closure.add(directory);
  else {
    closure.addFiles(directory);
    closure.addDependencies(needed, directory);
  }
  return closure.paths();
}

/** The directory with the `package.json` that a file belongs to. */
function packageOf(file: string): string | undefined {
  for (let directory = dirname(file); ; directory = dirname(directory)) {
    if (existsSync(join(directory, "package.json"))) return directory;
    if (directory === dirname(directory)) return undefined;
  }
}

/**
 * What packages need of their dependencies inside a sandbox, where that is less than they name: tool-kit checks
 * definitions and input with TypeBox and ajv, which the runner has done by then.
 */
const neededInside: Readonly<Record<string, Needed>> = {
  "@larkline/tool-kit": { "@larkline/protocol": "alone" },
};

const names = Type.Optional(Type.Record(Type.String(), Type.Unknown()));

const parsePackage = parserOf(
  Type.Object({
    name: Type.Optional(Type.String()),
    dependencies: names,
    optionalDependencies: names,
    peerDependencies: names,
  }),
);

function neededOf(directory: string): Needed {
  const file = join(directory, "package.json");
  const parsed = parsePackage(JSON.parse(readFileSync(file, "utf8")));
  if (!parsed.ok) throw new Error(`${file}: ${parsed.error}`);
  const { name = "", dependencies, optionalDependencies, peerDependencies } = parsed.value;
  const all = Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies });
  return neededInside[name] ?? Object.fromEntries(all.map((each) => [each, "whole"]));
}

/** A package with more files than this is not taken for a package: it is usually a home directory. */
const maxEntries = 50_000;

class Closure {
  readonly #paths = new Set<string>();
  readonly #seen = new Set<string>();
  /** Packages that may be seen whole where their `node_modules` may: every path is a mount, which takes its time. */
  readonly #whole = new Set<string>();

  /** Sorted; none contains another. */
  paths(): string[] {
    for (const directory of this.#whole) {
      if (this.#paths.has(join(directory, "node_modules"))) this.#paths.add(directory);
      else {
        for (const path of sourcesIn(directory, { entries: maxEntries }) ?? [directory]) {
          this.#paths.add(path);
        }
      }
    }
    return outermost([...this.#paths].map(storeOf));
  }

  add(directory: string): void {
    if (this.#seen.has(directory)) return;
    this.#seen.add(directory);
    this.addFiles(directory);
    this.addDependencies(neededOf(directory), directory);
  }

  addFiles(directory: string): void {
    const installed = containingModules(directory);
    if (installed !== undefined) return void this.#paths.add(installed);
    const files = sourcesIn(directory, { entries: maxEntries }, true);
    if (files === undefined) this.#whole.add(directory);
    else for (const path of files) this.#paths.add(path);
  }

  addDependencies(needed: Needed, from: string): void {
    for (const [name, how] of Object.entries(needed)) {
      this.addDependency(name, from, how === "alone");
    }
  }

  addDependency(name: string, from: string, isAlone: boolean): void {
    const modules = modulesWith(name, from);
    if (modules === undefined) return; // an optional one that is not installed
    this.#paths.add(modules);
    const directory = realpathSync(join(modules, name));
    if (isAlone) this.addFiles(directory);
    else this.add(directory);
  }
}

/** The paths that no other one contains, each once, sorted. */
export function outermost(paths: readonly string[]): string[] {
  const sorted = [...new Set(paths)].sort();
  return sorted.filter(
    (path, index) => !sorted.slice(0, index).some((other) => path.startsWith(`${other}/`)),
  );
}

/** In place of a package in pnpm's store the store, as others have one `node_modules` for all: each path is a mount. */
function storeOf(path: string): string {
  return /^(.*\/node_modules\/\.pnpm)\/[^/]+\/node_modules$/.exec(path)?.[1] ?? path;
}

/** The directory called `node_modules` in which Node finds a dependency of the package, as it looks for it. */
function modulesWith(name: string, from: string): string | undefined {
  for (let directory = from; ; directory = dirname(directory)) {
    const modules =
      basename(directory) === "node_modules" ? directory : join(directory, "node_modules");
    if (existsSync(join(modules, name, "package.json"))) return modules;
    if (directory === dirname(directory)) return undefined;
  }
}

function containingModules(path: string): string | undefined {
  for (let directory = path; directory !== dirname(directory); directory = dirname(directory)) {
    if (basename(directory) === "node_modules") return directory;
  }
  return undefined;
}

interface Budget {
  entries: number;
}

/**
 * Everything in a directory but what begins with a dot, in as few paths as possible; undefined: all of it. With
 * `besideModules` its own `node_modules` is left out, and does not count.
 */
function sourcesIn(directory: string, budget: Budget, besideModules = false): string[] | undefined {
  const entries = readdirSync(directory, { withFileTypes: true });
  budget.entries -= entries.length;
  if (budget.entries < 0) throw new Error(`${directory} holds too much to be a package`);
  let whole = true;
  const paths = entries.flatMap((entry) => {
    const path = join(entry.parentPath, entry.name);
    if (besideModules && entry.name === "node_modules") return [];
    if (!isSource(entry)) {
      whole = false;
      return [];
    }
    if (!entry.isDirectory()) return entry.isFile() ? [path] : [];
    const within = sourcesIn(path, budget);
    if (within === undefined) return [path];
    whole = false;
    return within;
  });
  return whole ? undefined : paths;
}

function isSource({ name }: Dirent): boolean {
  return !name.startsWith(".") && name !== "node_modules";
}
