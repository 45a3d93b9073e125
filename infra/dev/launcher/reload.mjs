import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync, watch } from "node:fs";
import { basename, dirname, relative, resolve } from "node:path";
import { home } from "./paths.mjs";

/** Those that load larkline.config.ts, and those that load the modules of RUNNER_TOOLS. */
const readers = {
  config: ["tool-runner", "agent-worker", "ingress", "console"],
  tools: ["tool-runner"],
};
const isCode = /\.[cm]?[jt]s$/;
/** An editor writes a file in several steps. */
const settleMs = 200;

/** Files that are read for one module, at most: what lies beyond that needs a restart. */
const mostFiles = 2_000;

/**
 * The modules that services load from outside of the checkout's own code, larkline.config.ts and those of RUNNER_TOOLS,
 * and what they and the files that they import contain now. Read before a process loads them, so that a change after
 * that is seen.
 */
export function seenFiles(env) {
  return modulesOf(env).map((module) => ({ ...module, seen: loadedFiles(module.path) }));
}

/**
 * Watches what was seen; a first larkline.config.ts is a change, too. `onChange` gets the name of a changed file and
 * the services that load it, one change after the other; returns what ends it.
 */
export function watchFiles(modules, onChange) {
  const watchers = new Map();
  let timer;
  let last = Promise.resolve();
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => (last = last.then(look)), settleMs);
  };
  // Folders, since editors put a new file in the place of the old one.
  const watchAll = () => {
    const folders = new Set(
      modules.flatMap(({ path, seen }) => [path, ...seen.keys()].map((file) => dirname(file))),
    );
    for (const [folder, watcher] of watchers) if (!folders.has(folder)) watcher.close();
    for (const folder of folders) {
      if (watchers.has(folder)) continue;
      try {
        const forget = () => watchers.delete(folder);
        watchers.set(
          folder,
          watch(folder, { persistent: false }, soon).on("error", forget).on("close", forget),
        );
      } catch {
        // The folder is gone, or the system watches no more files: a change needs a restart.
      }
    }
  };
  const look = async () => {
    const [files, services] = [new Set(), new Set()];
    for (const module of modules) {
      const now = loadedFiles(module.path);
      for (const [path, hash] of now) {
        if (module.seen.get(path) === hash) continue;
        files.add(relative(dirname(module.path), path));
        for (const service of module.services) services.add(service);
      }
      module.seen = now;
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

/** The configuration is among them while it is not there: the first one replaces the one of the playground. */
function modulesOf(env) {
  const config = {
    path: resolve(home, env.LARKLINE_CONFIG || "larkline.config.ts"),
    services: readers.config,
  };
  const tools = (env.RUNNER_TOOLS ?? "").split(",").map((name) => resolve(home, name.trim()));
  const all = [config, ...tools.map((path) => ({ path, services: readers.tools }))];
  return all.filter(({ path }) => isCode.test(basename(path)));
}

/** What a file may import by a path: text of comments and strings counts as well, and only makes more files known. */
const imports = /(?:\bfrom|\bimport|\brequire)\s*\(?\s*["'](\.{1,2}\/[^"'\n]+)["']/g;

/**
 * The hash of a module and of each file that it imports by a path, directly or through others. A file that is not there
 * is left out: whatever imports it changes as well. Exported for its test.
 */
export function loadedFiles(module) {
  const hashes = new Map();
  const open = [module];
  for (const path of open) {
    if (hashes.size >= mostFiles || hashes.has(path)) continue;
    const content = contentOf(path);
    if (content === undefined) continue;
    hashes.set(path, createHash("sha256").update(content).digest("hex"));
    if (!isCode.test(path)) continue;
    for (const [, target] of content.toString().matchAll(imports)) {
      open.push(resolve(dirname(path), target));
    }
  }
  return hashes;
}

/** Undefined where no file is, or it is being replaced: the next change shows it. */
function contentOf(path) {
  try {
    return existsSync(path) && statSync(path).isFile() ? readFileSync(path) : undefined;
  } catch {
    return undefined;
  }
}
