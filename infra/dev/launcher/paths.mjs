import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Failure } from "./failure.mjs";
import { text } from "./texts.mjs";

/** The checkout. */
export const root = fileURLToPath(new URL("../../..", import.meta.url));

/** Whether this was started in the checkout itself, and not by `npx larkline`. */
export const isCheckout = !process.env.LARKLINE_FOLDER;

/** Where `.env`, larkline.config.ts and tools of a person's own are: the checkout, or where `npx larkline` was called. */
export const home = isCheckout ? root : resolve(process.env.LARKLINE_FOLDER);

/** Everything that is written at run time; `LARKLINE_DATA_DIR` moves it. */
export const dataDirectory = resolve(home, process.env.LARKLINE_DATA_DIR ?? ".data");
export const logDirectory = join(dataDirectory, "logs");

/** The Node that the lock file pins. */
export const pinnedNode = join(root, "node_modules", "node", "bin", "node");

/** What services run on: the pinned Node, or ours where that was as good (see set-up.mjs) and none was installed. */
export function nodeProgram() {
  return existsSync(pinnedNode) ? pinnedNode : process.execPath;
}

/** A program that the dependencies bring along. */
export function toolPath(name) {
  return join(root, "node_modules", ".bin", name);
}

const rightsOfOthers = 0o077;
const privateMode = { folder: 0o700, file: 0o600 };

function isOpenToOthers(path) {
  return (lstatSync(path).mode & rightsOfOthers) !== 0;
}

/** `LARKLINE_DATA_DIR` may name any folder by mistake, such as one of the system. */
function isOurs(directory) {
  if (directory === join(home, ".data")) return true;
  const names = readdirSync(directory);
  return (
    names.length === 0 ||
    ["signing-key", "launcher.pid", "compile-cache"].some((name) => names.includes(name))
  );
}

/** Takes the rights of other users away, from everything below a folder first. Links are left alone. */
function makePrivate(path) {
  const facts = lstatSync(path);
  if (facts.isDirectory()) for (const name of readdirSync(path)) makePrivate(join(path, name));
  const mode = facts.isDirectory() ? privateMode.folder : privateMode.file;
  if (facts.isDirectory() || facts.isFile()) chmodSync(path, mode);
}

/**
 * Makes the data folder if need be. Only its owner may look into it: it holds keys, conversations and logs. One of
 * ours that is open to others (older versions made such) is closed with everything in it, any other is refused.
 */
function openDataDirectory() {
  if (mkdirSync(dataDirectory, { recursive: true, mode: privateMode.folder }) !== undefined) return;
  if (!isOpenToOthers(dataDirectory)) return;
  try {
    if (!isOurs(dataDirectory)) throw new Failure(text("dataNotPrivate", dataDirectory));
    makePrivate(dataDirectory);
  } catch (error) {
    if (error.code !== "EPERM") throw error;
    throw new Failure(text("dataNotPrivate", dataDirectory));
  }
}

/** Creates a folder below the data folder and returns its path. Throws a Failure when others may read there. */
export function dataFolder(...names) {
  openDataDirectory();
  const folder = join(dataDirectory, ...names);
  mkdirSync(folder, { recursive: true, mode: privateMode.folder });
  return folder;
}

/** A path as short as it can be shown: relative inside the folder that was started. */
export function shownPath(path) {
  const inside = relative(home, path);
  return inside.startsWith("..") ? path : inside || ".";
}
