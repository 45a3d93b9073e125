// `npm run pack [-- <folder>]`: builds the packages that others install, and packs each into a tarball.
import { execFile } from "node:child_process";
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { build, type Plugin } from "rolldown";
import { dts } from "rolldown-plugin-dts";
import { parse } from "yaml";

const run = promisify(execFile);
const repository = fileURLToPath(new URL("../../..", import.meta.url));

/** A package that others install. Everything of the workspace is bundled into it, JavaScript and types. */
interface Published {
  name: string;
  description: string;
  /** Of the registry: what it needs at run time and for its types. */
  dependencies: readonly string[];
  /** Loaded when it is first needed: a file of its own, by the name that the source asks for. */
  loadedLater?: boolean;
  platform: "neutral" | "node";
}

const published: readonly Published[] = [
  {
    name: "sdk",
    description:
      "Client of a Larkline deployment: runs as typed events, run items or chat messages.",
    dependencies: [],
    platform: "neutral",
  },
  {
    name: "messages",
    description:
      "Chat messages and agent events of AutoGen AgentChat: checked, made, written, as text.",
    dependencies: ["ajv", "typebox"],
    platform: "node",
  },
  {
    name: "tool-kit",
    description: "Defines and tests tools for Larkline, and gives larkline.config.ts its types.",
    dependencies: ["ajv", "typebox"],
    loadedLater: true,
    platform: "node",
  },
  {
    name: "engine",
    description: "The turn machine of Larkline in one process: tests agents, or embeds them.",
    dependencies: ["@anthropic-ai/sdk", "ajv", "openai", "typebox"],
    loadedLater: true,
    platform: "node",
  },
];

/** The packages whose modules go into the bundles. */
const bundled = [
  "agent",
  "engine",
  "messages",
  "model",
  "openai-sdk",
  "protocol",
  "sdk",
  "tool-kit",
];

/** Builds all packages and returns the paths of their tarballs, in `folder`. */
export async function pack(folder: string): Promise<string[]> {
  await mkdir(folder, { recursive: true });
  const work = await mkdtemp(join(tmpdir(), "larkline-pack-"));
  try {
    const types = join(work, "types");
    await declarations(types);
    const tarballs = await Promise.all(
      published.map(async (one) => await packed(one, { work, types, folder })),
    );
    const create = await packedCreate(tarballs, { work, types, folder });
    return [...tarballs, create, await packedProgram({ work, types, folder })];
  } finally {
    await rm(work, { recursive: true });
  }
}

interface Places {
  work: string;
  /** Declarations of the workspace, in its folders. */
  types: string;
  /** Of the tarballs. */
  folder: string;
}

/** Writes the declarations of every module that the packages are made of. */
async function declarations(types: string): Promise<void> {
  const settings = {
    extends: join(repository, "infra/tsconfig.base.json"),
    compilerOptions: {
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
      rootDir: repository,
      outDir: types,
      typeRoots: [join(repository, "node_modules/@types")],
    },
    // By name: what is only found through a link of node_modules gets no declarations.
    include: bundled.map((name) => join(repository, "packages", name, "src")),
    exclude: ["test", "suite", "fixture"].map((kind) =>
      join(repository, `packages/*/src/**/*.${kind}.ts`),
    ),
  };
  const project = `${types}.json`;
  await writeFile(project, JSON.stringify(settings));
  await run(join(repository, "node_modules/.bin/tsc"), ["-p", project]);
}

async function packed(one: Published, { work, types, folder }: Places): Promise<string> {
  const source = join(repository, "packages", one.name);
  const out = join(work, one.name);
  const external = (id: string): boolean =>
    id.startsWith("node:") ||
    one.dependencies.some((name) => id === name || id.startsWith(`${name}/`));
  const shared = {
    external,
    platform: one.platform,
    logLevel: "warn",
    checks: { pluginTimings: false },
  } as const;
  await build({
    ...shared,
    input: { index: join(source, "src/index.ts") },
    plugins: [laterAsFile],
    treeshake: pureSchemas,
    transform: oldNode,
    output: { dir: out, format: "es", chunkFileNames: "[name].js" },
  });
  if (one.loadedLater === true) {
    await build({
      ...shared,
      // An older Node loads only CommonJS synchronously.
      input: { "definition-check": join(repository, "packages/tool-kit/src/definition-check.ts") },
      treeshake: pureSchemas,
      transform: oldNode,
      output: { dir: out, format: "cjs", entryFileNames: "[name].cjs" },
    });
  }
  await build({
    ...shared,
    input: { index: join(types, "packages", one.name, "src/index.d.ts") },
    // Declarations of Ajv do not bundle; no package has a type of it in its door.
    external: (id) => external(id) || id.startsWith("ajv/"),
    plugins: [
      workspaceTypes(types),
      dts({ dtsInput: true, emitDtsOnly: true, tsconfig: false, generator: "oxc" }),
    ],
    output: { dir: out, format: "es" },
  });
  await writeFile(join(out, "package.json"), JSON.stringify(await manifestOf(one), undefined, 2));
  await cp(join(repository, "LICENSE"), join(out, "LICENSE"));
  await cp(join(source, "README.md"), join(out, "README.md"));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", folder], {
    cwd: out,
  });
  return join(folder, stdout.trim());
}

/** The program that makes a folder for tools. Until the tool kit is in the registry it brings it along. */
async function packedCreate(
  tarballs: readonly string[],
  { work, folder }: Places,
): Promise<string> {
  const toolKit = tarballs.find((path) => basename(path).startsWith("larkline-tool-kit-"));
  if (toolKit === undefined) throw new Error("the tool kit was not packed");
  const out = join(work, "create");
  await mkdir(out);
  await cp(toolKit, join(out, basename(toolKit)));
  await cp(
    join(repository, "infra/publish/create/larkline-create.mjs"),
    join(out, "larkline-create.mjs"),
  );
  await cp(join(repository, "LICENSE"), join(out, "LICENSE"));
  const { version, license } = await manifest(join(repository, "infra/publish/package.json"));
  const catalog = await versions();
  const made = {
    name: "larkline-create",
    version,
    description: "Makes a folder with a tool for Larkline, its test and a configuration.",
    license,
    type: "module",
    engines: { node: ">=20" },
    bin: { "larkline-create": "larkline-create.mjs" },
    files: ["*.mjs", "*.tgz"],
    larkline: {
      devDependencies: Object.fromEntries(
        ["@types/node", "typescript"].map((name) => [name, `^${catalog[name] ?? ""}`]),
      ),
    },
  };
  await writeFile(join(out, "package.json"), JSON.stringify(made, undefined, 2));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", folder], {
    cwd: out,
  });
  return join(folder, stdout.trim());
}

/**
 * The program that starts all of it without a checkout. It brings the sources of the apps as an archive of their own:
 * npm packs no lock file.
 */
async function packedProgram({ work, folder }: Places): Promise<string> {
  const out = join(work, "program");
  await cp(join(work, "create"), join(out, "create"), { recursive: true });
  await cp(join(repository, "infra/publish/program/larkline.mjs"), join(out, "larkline.mjs"));
  for (const name of ["LICENSE", "README.md"]) await cp(join(repository, name), join(out, name));
  const sources = await sourcesOfApps();
  await run("tar", ["-czf", join(out, "sources.tgz"), "-C", repository, ...sources]);
  const { version, license } = await manifest(join(repository, "infra/publish/package.json"));
  const made = {
    name: "larkline",
    version,
    description: "LLM agents behind a Feishu (Lark) bot: starts everything on this machine.",
    license,
    type: "module",
    engines: { node: ">=20" },
    bin: { larkline: "larkline.mjs" },
    files: ["larkline.mjs", "sources.tgz", "create"],
  };
  await writeFile(join(out, "package.json"), JSON.stringify(made, undefined, 2));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", folder], {
    cwd: out,
  });
  return join(folder, stdout.trim());
}

/** What a start reads, and a package.json for each project that the lock file knows. */
async function sourcesOfApps(): Promise<string[]> {
  const { stdout } = await run("git", ["ls-files", "-z"], {
    cwd: repository,
    maxBuffer: 16_000_000,
  });
  const isSource = /^(?:apps|packages|simulator|infra\/dev)\//;
  const isTest = /\.(?:test|suite|fixture)\.ts$/;
  const named =
    /^(?:LICENSE|pnpm-lock\.yaml|pnpm-workspace\.yaml|tsconfig\.json|infra\/tsconfig\.[a-z]+\.json)$/;
  return stdout
    .split("\0")
    .filter(
      (path) =>
        (isSource.test(path) && !isTest.test(path)) ||
        basename(path) === "package.json" ||
        named.test(path),
    );
}

/** Schemas that nothing reads are left out: making one has no effect. */
const pureSchemas = {
  moduleSideEffects: false,
  manualPureFunctions: ["Type"],
} as const;

/** What Node 20 does not have. */
const oldNode = {
  target: "node20",
  inject: {
    "Promise.withResolvers": [join(repository, "infra/publish/src/node20.ts"), "withResolvers"] as [
      string,
      string,
    ],
    "Map.groupBy": [join(repository, "infra/publish/src/node20.ts"), "groupBy"] as [string, string],
  },
};

const laterName = "@larkline/tool-kit/definition-check";

/** Names the file that is loaded later as it lies beside the bundle. */
const laterAsFile: Plugin = {
  name: "later-as-file",
  transform: {
    filter: { id: /tool-kit\/src\/tool\.ts$/ },
    handler: (code) => {
      if (!code.includes(`require("${laterName}")`)) {
        throw new Error(`tool.ts asks no longer for ${laterName}`);
      }
      return { code: code.replace(laterName, "./definition-check.cjs") };
    },
  },
};

/** Finds the declarations of modules of the workspace. */
function workspaceTypes(types: string): Plugin {
  return {
    name: "workspace-types",
    resolveId: {
      order: "pre", // the other one may find the sources, by NODE_PATH
      filter: { id: /^@larkline\/|^\.{1,2}\/.*\.ts$/ },
      handler: async (id, importer) => {
        if (id.startsWith(".")) {
          return importer === undefined
            ? undefined
            : join(importer, "..", id.replace(/\.ts$/, ".d.ts"));
        }
        const [, name = "", ...path] = id.split("/");
        const { exports } = await manifest(join(repository, "packages", name, "package.json"));
        const file =
          exports[path.length === 0 ? "." : `./${path.join("/")}`] ?? exports["./views/*"];
        return join(
          types,
          "packages",
          name,
          file?.replace("*", path.at(-1) ?? "").replace(/\.ts$/, ".d.ts") ?? "",
        );
      },
    },
  };
}

interface Manifest {
  version: string;
  license: string;
  exports: Record<string, string>;
}

async function manifest(path: string): Promise<Manifest> {
  return JSON.parse(await readFile(path, "utf8")) as Manifest; // our own file
}

/** Of everything from the registry, by name. */
async function versions(): Promise<Record<string, string>> {
  const text = await readFile(join(repository, "pnpm-workspace.yaml"), "utf8");
  return (parse(text) as { catalog: Record<string, string> }).catalog; // our own file
}

/** The package.json of the tarball. */
async function manifestOf({
  name,
  description,
  dependencies,
  platform,
}: Published): Promise<object> {
  const { version, license } = await manifest(join(repository, "packages", name, "package.json"));
  const catalog = await versions();
  return {
    name: `@larkline/${name}`,
    version,
    description,
    license,
    type: "module",
    sideEffects: false,
    engines: { node: ">=20" },
    exports: {
      ".": { types: "./index.d.ts", default: "./index.js" },
      "./package.json": "./package.json",
    },
    types: "./index.d.ts",
    ...(platform === "neutral" ? { browser: "./index.js" } : {}),
    files: ["*.js", "*.cjs", "*.d.ts"],
    ...(dependencies.length === 0
      ? {}
      : {
          dependencies: Object.fromEntries(
            dependencies.map((one) => [one, `^${catalog[one] ?? ""}`]),
          ),
        }),
  };
}
