import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, watch } from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { root } from "./paths.mjs";

/** Those that load larkline.config.ts, and those that load the modules of RUNNER_TOOLS. */
const readers = { config: ["tool-runner", "agent-worker", "ingress", "console"], tools: ["tool-runner"] };
const isCode = /\.[cm]?[jt]s$/;
/** An editor writes a file in several steps. */
const settleMs = 200;

/** What is watched of folders below, at most: what lies beyond that needs a restart. */
const mostFolders = 200;
/** Folders of the checkout itself, which a change of tools or configuration does not concern. */
const ownFolders = ["apps", "docs", "infra", "packages", "simulator", "test"].map((name) => join(root, name));

/**
 * The folders of larkline.config.ts and of the modules of RUNNER_TOOLS, and what is in them now: also what these files
 * import from there and below. Read before a process loads them, so that a change after that is seen.
 */
export function seenFiles(env) {
  const places = foldersOf(env);
  const nested = new Set([...places.map(({ folder }) => folder), ...ownFolders]);
  return { nested, watched: places.map((place) => ({ ...place, seen: contentsOf(place, nested) })) };
}

/**
 * Watches what was seen; a first larkline.config.ts is a change, too. `onChange` gets the name of a changed file and
 * the services that load it, one change after the other; returns what ends it.
 */
export function watchFiles({ nested, watched }, onChange) {
  const watchers = new Map();
  let timer;
  let last = Promise.resolve();
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => (last = last.then(look)), settleMs);
  };
  const watchAll = () => {
    for (const folder of watched.flatMap(({ seen }) => seen.folders)) {
      if (watchers.has(folder)) continue;
      try {
        const forget = () => watchers.delete(folder);
        watchers.set(folder, watch(folder, { persistent: false }, soon).on("error", forget).on("close", forget));
      } catch {
        // The folder is gone, or the system watches no more files: a change needs a restart.
      }
    }
  };
  const look = async () => {
    const [files, services] = [new Set(), new Set()];
    for (const one of watched) {
      const now = contentsOf(one, nested);
      for (const [name, hash] of now.hashes) {
        if (one.seen.hashes.get(name) === hash || (!one.seen.isLoaded && !one.loaders.has(name))) continue;
        files.add(name);
        for (const service of servicesThatLoad(name, one)) services.add(service);
      }
      one.seen = now;
    }
    watchAll();
    if (files.size === 0) return;
    const inOrder = readers.config.filter((name) => services.has(name));
    await onChange([...files].join(", "), inOrder);
  };
  watchAll();
  soon(); // what has changed since it was seen
  return () => {
    for (const one of watchers.values()) one.close();
    clearTimeout(timer);
  };
}

/** Each folder once, with the names of the files that are loaded there and who loads them. */
function foldersOf(env) {
  const folders = new Map();
  const add = (file, services) => {
    if (!isCode.test(file)) return;
    const loaders = folders.get(dirname(file)) ?? new Map();
    folders.set(dirname(file), loaders.set(basename(file), services));
  };
  // Watched also while it is not there: the first one replaces the configuration of the playground.
  add(resolve(root, env.LARKLINE_CONFIG || "larkline.config.ts"), readers.config);
  for (const module of (env.RUNNER_TOOLS ?? "").split(",").map((name) => resolve(root, name.trim()))) {
    if (existsSync(module)) add(module, readers.tools);
  }
  return [...folders].map(([folder, loaders]) => ({ folder, loaders }));
}

/** Another file of the folder may be imported by any of those that are loaded there. */
function servicesThatLoad(name, { folder, loaders }) {
  const there = [...loaders].flatMap(([file, services]) => (existsSync(join(folder, file)) ? services : []));
  return loaders.get(name) ?? there;
}

/**
 * The hash of each file of code in a folder and below it, by its path from there, and the folders that were read. Those
 * of `nested` have a watch of their own; nothing is read below a folder where no file `isLoaded`. A deleted file is no
 * change: what imports it changes as well.
 */
function contentsOf({ folder: top, loaders }, nested) {
  const isLoaded = [...loaders.keys()].some((name) => existsSync(join(top, name)));
  const hashes = new Map();
  const folders = [top];
  for (const folder of folders) {
    try {
      for (const entry of readdirSync(folder, { withFileTypes: true })) {
        const path = join(folder, entry.name);
        const isRead = isLoaded && isWatched(entry.name) && !nested.has(path) && folders.length < mostFolders;
        if (entry.isDirectory() && isRead) folders.push(path);
        if (!entry.isFile() || !isCode.test(entry.name)) continue;
        hashes.set(relative(top, path), createHash("sha256").update(readFileSync(path)).digest("hex"));
      }
    } catch {
      // The folder is being replaced: the next change shows the rest.
    }
  }
  return { hashes, folders, isLoaded };
}

function isWatched(name) {
  return name !== "node_modules" && !name.startsWith(".");
}
