/* Loaded before anything that may import TypeBox, in processes that run tools: so it stands apart and imports Node only. */
import { createRequire, registerHooks } from "node:module";
import { fileURLToPath } from "node:url";

// An import of it would load all that it can do, streams and promises among it: several ms of each sandbox's start.
const { readFileSync } = process.getBuiltinModule("node:fs");

/**
 * Saves a process that runs tools for a runner from loading TypeBox: some 370 files, most of the time in which a tool is
 * loaded. Such a process reads no schema of a tool's module, since the runner has checked its definition and checks its
 * input. So a module that imports nothing but `Type` gets one whose schemas are made when they are read,
 * by the TypeBox that the module would have got. Other modules get TypeBox at once. Call it before the tool is imported.
 */
export function quickenImports(): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const { parentURL = "", conditions } = context;
      // Files of TypeBox stand where they say: Node need not look for links and packages on the way to each.
      if (
        specifier.startsWith(".") &&
        specifier.endsWith(".mjs") &&
        parentURL.includes("/node_modules/typebox/")
      ) {
        return { url: new URL(specifier, parentURL).href, format: "module", shortCircuit: true };
      }
      const resolved = nextResolve(specifier, context);
      if (
        specifier !== "typebox" ||
        conditions.includes("require") ||
        !importsOnlyType(parentURL)
      ) {
        return resolved;
      }
      return { url: `${laterScheme}${resolved.url}`, format: "module", shortCircuit: true };
    },
    load(url, context, nextLoad) {
      if (!url.startsWith(laterScheme)) return nextLoad(url, context);
      const real = url.slice(laterScheme.length);
      makers().set(real, typeLater(real));
      const source = `export const Type = globalThis[Symbol.for(${JSON.stringify(makersName)})].get(${JSON.stringify(real)}); export default Type;`;
      return { format: "module", source, shortCircuit: true };
    },
  });
}

const laterScheme = "larkline-later:";
const makersName = "larkline.typeMakers";

/** The makers of schemas by the URL of their TypeBox, where the source above finds them. */
function makers(): Map<string, object> {
  const holder = globalThis as { [key: symbol]: Map<string, object> | undefined }; // a global under a symbol of our own
  return (holder[Symbol.for(makersName)] ??= new Map());
}

const typeImport = /\bimport\s*(?:Type|\{([^}]*)\})\s*from\s*(["'])typebox\2/g;

/** Whether every mention of TypeBox in a module's source is an import of `Type`, or of types. */
function importsOnlyType(url: string): boolean {
  if (!url.startsWith("file:")) return false;
  const source = readFileSync(fileURLToPath(url), "utf8");
  const imports = [...source.matchAll(typeImport)];
  const mentions = source.match(/(["'])typebox\1/g) ?? [];
  return (
    mentions.length === imports.length &&
    imports.every(([, names = "Type"]) =>
      names.split(",").every((name) => /^\s*(?:type\s.*|Type(?:\s+as\s+\w+)?)?\s*$/.test(name)),
    )
  );
}

type Maker = (...args: readonly unknown[]) => object;

/** What these make is a plain object that depends on their arguments only. */
const plainMakers = new Set([
  "Any",
  "Array",
  "Boolean",
  "Enum",
  "Integer",
  "Intersect",
  "Literal",
  "Null",
  "Number",
  "Object",
  "Omit",
  "Optional",
  "Partial",
  "Pick",
  "Record",
  "Required",
  "String",
  "Tuple",
  "Union",
  "Unknown",
  "Unsafe",
]);

/** `Type` of the TypeBox at `url`, which is loaded when the first schema is read. */
function typeLater(url: string): object {
  let loaded: Readonly<Record<string, unknown>> | undefined;
  const real = (): Readonly<Record<string, unknown>> =>
    (loaded ??= (
      createRequire(import.meta.url)(fileURLToPath(url)) as {
        Type: Readonly<Record<string, unknown>>;
      }
    ).Type);
  const kept = new Map<string, Maker>();
  const makerOf = (name: string): Maker => {
    const maker =
      kept.get(name) ?? ((...args) => schemaLater(() => (real()[name] as Maker)(...args)));
    kept.set(name, maker);
    return maker;
  };
  return new Proxy(Object.create(null) as object, {
    get: (_, name) =>
      typeof name === "string" && plainMakers.has(name) ? makerOf(name) : Reflect.get(real(), name),
    has: (_, name) => Reflect.has(real(), name),
  });
}

/** An object that becomes what `make` returns as soon as anything is asked of it. */
function schemaLater(make: () => object): object {
  let isMade = false;
  const made = (target: object): object => {
    if (isMade) return target;
    isMade = true;
    const schema = make();
    Object.setPrototypeOf(target, Object.getPrototypeOf(schema) as object | null);
    return Object.defineProperties(target, Object.getOwnPropertyDescriptors(schema));
  };
  return new Proxy<object>(
    {},
    {
      get: (target, name, receiver) => Reflect.get(made(target), name, receiver) as unknown,
      set: (target, name, value, receiver) => Reflect.set(made(target), name, value, receiver),
      has: (target, name) => Reflect.has(made(target), name),
      deleteProperty: (target, name) => Reflect.deleteProperty(made(target), name),
      defineProperty: (target, name, facts) => Reflect.defineProperty(made(target), name, facts),
      getOwnPropertyDescriptor: (target, name) =>
        Reflect.getOwnPropertyDescriptor(made(target), name),
      ownKeys: (target) => Reflect.ownKeys(made(target)),
      getPrototypeOf: (target) => Reflect.getPrototypeOf(made(target)),
      setPrototypeOf: (target, prototype) => Reflect.setPrototypeOf(made(target), prototype),
      isExtensible: (target) => Reflect.isExtensible(made(target)),
      preventExtensions: (target) => Reflect.preventExtensions(made(target)),
    },
  );
}
