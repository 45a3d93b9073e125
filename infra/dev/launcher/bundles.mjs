import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from "node:fs";
import { join } from "node:path";
import { runCommand } from "./command.mjs";
import { Stopped } from "./failure.mjs";
import { nodeProgram, root } from "./paths.mjs";
import { text } from "./texts.mjs";

const cache = join(root, "node_modules/.cache/larkline");
const others = ["infra/dev/bundle.mjs", "pnpm-lock.yaml"];
/** What a launcher that still runs may need is among them: those used last. */
const kept = 4;

/**
 * The folder with a bundle of each app, made from the sources as they are now: once after a change, which takes a
 * second or two. Undefined where there are none, so that the apps run from their sources: they could not be made, or
 * `LARKLINE_BUNDLES` is `never`.
 */
export async function bundledApps({ signal, say }) {
  if (process.env.LARKLINE_BUNDLES === "never") return undefined;
  try {
    const place = join(cache, digestOfSources());
    if (!existsSync(place)) await build(place, { signal, say });
    utimesSync(place, new Date(), new Date());
    return place;
  } catch (error) {
    if (error instanceof Stopped) throw error;
    say(text("notBundled", error.message));
    return undefined;
  }
}

async function build(place, { signal, say }) {
  say(text("bundling"));
  mkdirSync(cache, { recursive: true });
  removeOld();
  const draft = `${place}.${process.pid}.tmp`;
  try {
    const code = await runCommand([nodeProgram(), "infra/dev/bundle.mjs", draft], { signal });
    if (code !== 0) throw new Error(`infra/dev/bundle.mjs ended with ${code}`);
    renameSync(draft, place);
  } catch (error) {
    rmSync(draft, { recursive: true, force: true });
    if (!existsSync(place)) throw error; // another launcher was quicker
  }
}

function removeOld() {
  const all = readdirSync(cache).map((name) => ({
    path: join(cache, name),
    usedMs: statSync(join(cache, name)).mtimeMs,
  }));
  for (const { path } of all.sort((one, other) => other.usedMs - one.usedMs).slice(kept)) {
    rmSync(path, { recursive: true, force: true });
  }
}

function digestOfSources() {
  const hash = createHash("sha256");
  for (const path of [...sourceFiles(), ...others.map((name) => join(root, name))]) {
    hash.update(path).update("\0").update(readFileSync(path)).update("\0");
  }
  return hash.digest("hex").slice(0, 24);
}

/** All that may be in a bundle: code, and what says where it is found. */
export function sourceFiles() {
  return ["apps", "packages", "simulator"].flatMap((name) => filesBelow(join(root, name))).sort();
}

function filesBelow(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return entry.name === "node_modules" ? [] : filesBelow(path);
    const isTest = /\.(test|suite|fixture)\.ts$/.test(entry.name);
    return !isTest && (/\.tsx?$/.test(entry.name) || entry.name === "package.json") ? [path] : [];
  });
}
