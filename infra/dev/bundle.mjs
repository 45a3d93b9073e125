// `node infra/dev/bundle.mjs <folder>`: makes one small bundle of each app, which starts in half the time of its sources
// and takes half of the memory. `npm start` keeps them by a digest of the sources (see launcher/bundles.mjs), images have
// them too.
import { createHash } from "node:crypto";
import http from "node:http";
import { createRequire, registerHooks } from "node:module";
import { readdirSync, readFileSync, realpathSync } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { sourceFiles } from "./launcher/bundles.mjs";
import { root } from "./launcher/paths.mjs";

const folder = resolve(process.argv[2] ?? "");
// The simulator, which every start has, bundles its page with it.
const { build } = await import(
  pathToFileURL(createRequire(join(root, "simulator/package.json")).resolve("rolldown"))
);

/** What runs as a process or a thread. */
const programs = {
  ingress: "apps/ingress/src/main.ts",
  "agent-worker": "apps/agent-worker/src/main.ts",
  "tool-runner": "apps/tool-runner/src/main.ts",
  console: "apps/console/src/main.ts",
  cli: "apps/cli/src/main.ts",
  playground: "simulator/src/playground/main.ts",
  "tool-process": "packages/runner/src/tool-process.ts",
  ...Object.fromEntries(threads()),
};

/** Threads are named so. The one of the process that reads documents is not among them: that reads its own folder only. */
function threads() {
  const paths = sourceFiles().filter((path) => path.endsWith("-thread.ts"));
  return paths.map((path) => [basename(path, ".ts"), relative(root, path)]);
}

/** What modules outside of the bundles import, as configuration and tools do: they get the bundles' own. */
const lent = {
  config: "packages/process/src/config/index.ts",
  "tool-kit": "packages/tool-kit/src/index.ts",
  "feishu-tools": "packages/feishu-tools/src/index.ts",
  "feishu-tools-api": "packages/feishu-tools/src/api.ts",
  "feishu-tools-approvals": "packages/feishu-tools/src/approvals.ts",
  "definition-check": "packages/tool-kit/src/definition-check.ts",
  typebox: "packages/tool-kit/node_modules/typebox/build/index.mjs",
};
const sdkPath = "packages/feishu/node_modules/@larksuiteoapi/node-sdk/lib/index.js";
/** What is loaded by `require`, when it is first needed. */
const required = {
  ajv: "packages/protocol/node_modules/ajv/dist/2020.js",
  "node-sdk": sdkPath,
};
/** Those that run tools have the parts of Feishu's SDK that its tools call; they would weigh on the others. */
const runsTools = ["tool-runner", "tool-process"];
/** What processes that run tools have in place of the above. */
const requiredByTools = { ajv: required.ajv, "node-sdk-tools": sdkPath };

/** What stays outside: packages that a start may go without. */
const outside = ["openai", "@larkline/openai-sdk"];

const pageModule = join(root, "simulator/src/playground/page-script.ts");
const schemaModule = join(root, "packages/protocol/src/compiled-schemas.ts");
const requireOfProtocol = createRequire(join(root, "packages/protocol/package.json"));
const shared = {
  cwd: root,
  platform: "node",
  logLevel: "warn",
  checks: { pluginTimings: false, ineffectiveDynamicImport: false, eval: false },
  onLog: (level, log, handler) => handler(log.code === "UNRESOLVED_IMPORT" ? "error" : level, log),
};
/** V8 keeps a text of ASCII in half the memory. The maps are for `node --enable-source-maps`; the sources lie at hand. */
const output = {
  sourcemap: true,
  sourcemapExcludeSources: true,
  keepNames: true,
  minify: { codegen: { asciiOnly: true } },
};

/** Where a file of the checkout is, from the bundles: real paths, as Node finds them. */
const placeOf = (path) => relative(folder, realpathSync(join(root, path)));

const validators = await compileSchemas();
await Promise.all([
  bundlePrograms(),
  bundleValidators(),
  bundleAjv(),
  bundleSdk("node-sdk", ["packages/feishu/src"]),
  bundleSdk("node-sdk-tools", ["packages/feishu-tools/src"]),
  bundlePage(),
]);

async function bundlePrograms() {
  const files = Object.entries({ ...programs, ...lent }).map(([name, path]) => [
    name,
    join(root, path),
  ]);
  await build({
    ...shared,
    input: Object.fromEntries(files),
    plugins: [
      outsidePlaces(),
      redisQueuesAlone(),
      plainHttp(),
      plainServers(),
      asciiTemplates(),
      ownPlaces(),
      replacing(),
      compiledSchemas(),
      builtPage(),
    ],
    output: {
      ...output,
      dir: folder,
      format: "es",
      entryFileNames: "[name].mjs",
      chunkFileNames: "[name]-[hash].mjs",
    },
  });
}

/** Found as their importer finds them, not from where the bundle lies. One that is not installed stays as it is. */
function outsidePlaces() {
  return {
    name: "outside-places",
    resolveId: {
      order: "pre",
      filter: { id: /^[@a-z]/ },
      async handler(id, importer) {
        if (
          importer === undefined ||
          !outside.some((one) => id === one || id.startsWith(`${one}/`))
        ) {
          return undefined;
        }
        const found = await this.resolve(id, importer, { skipSelf: true });
        return { id: found === null || found.external ? id : found.id, external: true };
      },
    },
  };
}

/** BullMQ without its queues on PostgreSQL and its repeated jobs, which no app of ours has: a third of its text. */
function redisQueuesAlone() {
  const sql = "\0no-sql.cjs";
  const cron = "\0no-cron.cjs";
  const sources = {
    [sql]: "exports.SQL_COMMANDS = {}; exports.SQL_MIGRATIONS = {};",
    [cron]:
      'exports.CronExpressionParser = { parse() { throw new Error("repeated jobs are not in the bundles"); } };',
  };
  return {
    name: "redis-queues-alone",
    resolveId: {
      order: "pre",
      filter: { id: /^(pg|cron-parser|\.\/sql-scripts)$/ },
      handler(id, importer = "") {
        if (!importer.includes("/node_modules/bullmq/")) return undefined;
        if (id === "pg") return { id, external: true }; // required when a queue is opened there
        return id === "cron-parser" ? cron : sql;
      },
    },
    load: (id) => sources[id],
  };
}

/** An `import` of `node:http` reads all of its exports, and three of them load the whole client behind `fetch`. */
function plainHttp() {
  const names = Object.entries(Object.getOwnPropertyDescriptors(http)).flatMap(([name, { get }]) =>
    get === undefined || ["globalAgent", "maxHeaderSize"].includes(name) ? [name] : [],
  );
  return {
    name: "plain-http",
    resolveId: {
      order: "pre",
      filter: { id: /^(node:)?http$/ },
      handler: (_id, _importer, { kind }) =>
        kind === "import-statement" ? "plain-http" : undefined,
    },
    load: (id) =>
      id === "plain-http"
        ? `const http = process.getBuiltinModule("node:http"); export default http; export const { ${names.join(", ")} } = http;`
        : undefined,
  };
}

/** Fastify without HTTP/2, which no app of ours has: Node's own modules for it would be loaded. */
function plainServers() {
  const none = "\0no-http2.cjs";
  return {
    name: "plain-servers",
    resolveId: {
      order: "pre",
      filter: { id: /^node:http2$/ },
      handler: (_id, importer = "") =>
        importer.includes("/node_modules/fastify/") ? none : undefined,
    },
    load: (id) => (id === none ? "module.exports = {};" : undefined),
  };
}

/** The minifier leaves templates with a tag alone. Of those, `String.raw` writes expressions, which read the same from escapes. */
function asciiTemplates() {
  return {
    name: "ascii-templates",
    transform: {
      filter: { id: /\.ts$/, code: /\w`/ },
      handler: (code) => ({
        code: code.replaceAll(
          /[^\0-\x7f]/g,
          (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
        ),
        map: null,
      }),
    },
  };
}

/** Modules keep the places of their sources: files beside them, and packages, are found from there. */
function ownPlaces() {
  const bundles = new Map(
    Object.entries(programs).map(([name, path]) => [join(root, path), `./${name}.mjs`]),
  );
  return {
    name: "own-places",
    transform: {
      filter: { id: /\.ts$/, code: /import\.meta\./ },
      handler(code, id) {
        const place = `new URL(${JSON.stringify(relative(folder, id))}, import.meta.url)`;
        const moved = code
          .replaceAll(
            /(new URL\("([^"]+\.ts)", )?import\.meta\.url/g,
            (_whole, start = "", path = "") => {
              const bundle = bundles.get(join(dirname(id), path));
              return path === "" || bundle === undefined
                ? `${start}${place}.href`
                : `new URL("${bundle}", import.meta.url`;
            },
          )
          .replaceAll("import.meta.resolve(", "resolveFromSource(");
        if (!moved.includes("resolveFromSource(")) return { code: moved, map: null };
        const helper = [
          'import { createRequire as requireOfSource } from "node:module";',
          'import { pathToFileURL as urlOfSource } from "node:url";',
          `const resolveFromSource = (id) => urlOfSource(requireOfSource(${place}).resolve(id)).href;`,
        ];
        return { code: `${helper.join(" ")} ${moved}`, map: null };
      },
    },
  };
}

/** Has each process load the bundle where a module outside of it, or `require`, has found the source. */
function replacing() {
  const sources = {
    replacing: replacementsWith(required),
    "replacing-for-tools": replacementsWith(requiredByTools),
  };
  const starts = new Map(
    Object.entries(programs).map(([name, path]) => [
      join(root, path),
      runsTools.includes(name) ? "replacing-for-tools" : "replacing",
    ]),
  );
  return {
    name: "replacing",
    resolveId: (id) => (id in sources ? id : undefined),
    load: (id) => sources[id],
    transform: (code, id) =>
      starts.has(id) ? { code: `import "${starts.get(id)}"; ${code}`, map: null } : undefined,
  };
}

/** The hook of a process, with these in place of what it would require. */
function replacementsWith(scripts) {
  const replaced = [
    ...Object.entries(lent).map(([name, path]) => [placeOf(path), `${name}.mjs`, "module"]),
    ...Object.entries(scripts).map(([name, path]) => [placeOf(path), `${name}.cjs`, "commonjs"]),
  ];
  return `import { registerHooks } from "node:module";
const urlOf = (path) => new URL(path, import.meta.url).href;
const bundles = new Map(${JSON.stringify(replaced)}.map(([path, name, format]) => [urlOf(path), { url: urlOf(name), format }]));
registerHooks({
  resolve(specifier, context, nextResolve) {
    const found = nextResolve(specifier, context);
    return { ...found, ...bundles.get(found.url) };
  },
});`;
}

/** The code of a validator for each schema of our own, by the digest of the schema. */
async function compileSchemas() {
  const found = [];
  globalThis[Symbol.for("larkline.schemas")] = found;
  registerHooks({
    load: (url, context, nextLoad) =>
      url === pathToFileURL(schemaModule).href
        ? {
            format: "module",
            source: `const found = globalThis[Symbol.for("larkline.schemas")];
export const compiledBefore = (schema) => (found.push(schema), () => undefined);`,
            shortCircuit: true,
          }
        : nextLoad(url, context),
  });
  for (const path of modulesWithSchemas()) await import(pathToFileURL(path));
  const { ownOptions } = await import(pathToFileURL(join(root, "packages/protocol/src/schema.ts")));
  const { Ajv2020 } = requireOfProtocol("ajv/dist/2020.js");
  const { default: codeOf } = requireOfProtocol("ajv/dist/standalone");
  const ajv = new Ajv2020({ ...ownOptions, code: { source: true } });
  return new Map(
    found.map((schema) => [digestOf(JSON.stringify(schema)), codeOf(ajv, ajv.compile(schema))]),
  );
}

/** Modules do nothing when they are imported, but for those that are programs. */
function modulesWithSchemas() {
  const isProgram = /\/main\.ts$/;
  return sourceFiles().filter(
    (path) =>
      path.endsWith(".ts") &&
      !isProgram.test(path) &&
      /\b(jsonP|p)arserOf\(/.test(readFileSync(path, "utf8")),
  );
}

function digestOf(text) {
  return createHash("sha256").update(text).digest("hex").slice(0, 24);
}

async function bundleValidators() {
  const names = [...validators.keys()].map((digest) => [
    `validators/${digest}`,
    `validator:${digest}`,
  ]);
  await build({
    ...shared,
    input: Object.fromEntries(names),
    plugins: [
      {
        name: "validators",
        resolveId: (id) =>
          id.startsWith("validator:")
            ? id
            : id.startsWith("ajv/")
              ? requireOfProtocol.resolve(id)
              : undefined,
        load: (id) =>
          id.startsWith("validator:") ? validators.get(id.slice("validator:".length)) : undefined,
      },
    ],
    output: {
      ...output,
      sourcemap: false,
      dir: folder,
      format: "cjs",
      entryFileNames: "[name].cjs",
      chunkFileNames: "validators/[name].cjs",
    },
  });
}

/** Each process loads the validators that it uses. */
function compiledSchemas() {
  const source = `import { createHash } from "node:crypto";
import { createRequire } from "node:module";
const require = createRequire(import.meta.url);
const digests = new Set(${JSON.stringify([...validators.keys()])});
${digestOf}
export const compiledBefore = (schema) => () => {
  const digest = digestOf(JSON.stringify(schema));
  return digests.has(digest) ? require("./validators/" + digest + ".cjs") : undefined;
};`;
  return {
    name: "compiled-schemas",
    resolveId: (id) => (id === "compiled-schemas" ? id : undefined),
    load: (id) =>
      id === schemaModule
        ? 'export * from "compiled-schemas";'
        : id === "compiled-schemas"
          ? source
          : undefined,
  };
}

async function bundlePage() {
  const input = join(root, "simulator/src/playground/page/app.tsx");
  await build({
    ...shared,
    platform: "browser",
    input,
    output: { file: join(folder, "page.js"), minify: true },
  });
}

/** The playground reads its page, and goes without the bundler. */
function builtPage() {
  const source = `import { readFile } from "node:fs/promises";
export const pageScript = async () => await readFile(new URL("./page.js", import.meta.url), "utf8");`;
  return {
    name: "built-page",
    resolveId: (id) => (id === "built-page" ? id : undefined),
    load: (id) =>
      id === pageModule ? 'export * from "built-page";' : id === "built-page" ? source : undefined,
  };
}

async function bundleAjv() {
  await build({
    ...shared,
    input: join(root, required.ajv),
    output: { ...output, sourcemap: false, file: join(folder, "ajv.cjs"), format: "cjs" },
  });
}

/** The SDK of Feishu with the parts that these sources call: it has all methods, in 6 MB with Chinese comments. */
async function bundleSdk(name, callers) {
  const path = realpathSync(join(root, sdkPath, "../../es/index.js"));
  await build({
    ...shared,
    input: "sdk",
    plugins: [usedParts(path, callers), plainRequests()],
    treeshake: { moduleSideEffects: (id) => !id.startsWith(dirname(path)) },
    output: { ...output, sourcemap: false, file: join(folder, `${name}.cjs`), format: "cjs" },
  });
}

/** The SDK's HTTP client without `fetch` and HTTP/2, which ours do not use: Node's own modules for them would be loaded. */
function plainRequests() {
  const sources = {
    "\0no-fetch": "export const getFetch = () => undefined;",
    "\0no-http2": "export default {};",
  };
  return {
    name: "plain-requests",
    resolveId: {
      order: "pre",
      filter: { id: /^(\.\/fetch\.js|http2)$/ },
      handler(id, importer = "") {
        if (!importer.includes("/node_modules/axios/lib/")) return undefined;
        return id === "http2" ? "\0no-http2" : "\0no-fetch";
      },
    },
    load: (id) => sources[id],
    transform: {
      filter: { id: /\/axios\/lib\/utils\.js$/ },
      handler: (code) => ({ code: code.replaceAll("G.FormData", "undefined"), map: null }),
    },
  };
}

/** Of the typed methods that our sources call: `im` of `client.im.v1.message.create`. */
function usedNamespaces(callers) {
  const texts = callers.flatMap((caller) =>
    readdirSync(join(root, caller), { recursive: true })
      .filter((name) => name.endsWith(".ts"))
      .map((name) => readFileSync(join(root, caller, name), "utf8")),
  );
  return new Set(
    texts.flatMap((text) =>
      [...text.matchAll(/\.(\w+)\s*\.v\d+\b/g)].map(([, namespace]) => namespace),
    ),
  );
}

/** The exports that our sources read, and of the client the namespaces: each class it inherits from adds one. */
function usedParts(path, callers) {
  const importer = readFileSync(join(root, "packages/feishu/src/transport/sdk.ts"), "utf8");
  const exported = new Set([...importer.matchAll(/\bloadSdk\(\)\.(\w+)/g)].map(([, name]) => name));
  const used = usedNamespaces(callers);
  return {
    name: "used-parts",
    resolveId: (id) => (id === "sdk" ? id : undefined),
    load: (id) =>
      id === "sdk"
        ? `export { ${[...exported].join(", ")} } from ${JSON.stringify(path)};`
        : undefined,
    transform: {
      filter: { id: /node-sdk\/es\/index\.js$/ },
      handler(code) {
        const kept = new Set();
        const classes = /^(class Client\$[\w$]+ (?:extends Client\$[\w$]+ )?\{)\n([^]*?)^\}$/gm;
        const pruned = code.replaceAll(classes, (whole, head, body) => {
          const namespace = /^ {8}this\.(\w+) = \{/m.exec(body)?.[1] ?? "";
          if (!used.has(namespace)) return `${head}}`;
          kept.add(namespace);
          return whole;
        });
        const missing = [...used].filter((one) => !kept.has(one));
        if (missing.length > 0) {
          throw new Error(`the SDK of Feishu has no ${missing.join(", ")} in its client`);
        }
        return { code: pruned, map: null };
      },
    },
  };
}
