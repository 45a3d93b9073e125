import { mkdirSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** The checkout. */
export const root = fileURLToPath(new URL("../../..", import.meta.url));

/** Everything that is written at run time; `LARKLINE_DATA_DIR` moves it. */
export const dataDirectory = resolve(root, process.env.LARKLINE_DATA_DIR ?? ".data");
export const logDirectory = join(dataDirectory, "logs");

/** The Node that the lock file pins; services never run on the machine's own one. */
export const pinnedNode = join(root, "node_modules", "node", "bin", "node");

/** A program that the dependencies bring along. */
export function toolPath(name) {
  return join(root, "node_modules", ".bin", name);
}

/** Creates a folder below the data folder and returns its path. */
export function dataFolder(...names) {
  const folder = join(dataDirectory, ...names);
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** A path as short as it can be shown: relative inside the checkout. */
export function shownPath(path) {
  const inside = relative(root, path);
  return inside.startsWith("..") ? path : inside || ".";
}
