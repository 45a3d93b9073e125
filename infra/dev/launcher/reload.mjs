import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, watch } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { root } from "./paths.mjs";

/** Those that load larkline.config.ts, and those that load the modules of RUNNER_TOOLS. */
const readers = { config: ["tool-runner", "agent-worker", "ingress", "console"], tools: ["tool-runner"] };
const isCode = /\.[cm]?[jt]s$/;
/** An editor writes a file in several steps. */
const settleMs = 200;

/**
 * Watches the folders of larkline.config.ts and of the modules of RUNNER_TOOLS: also what these files import changes
 * there. `onChange` is told the name of a changed file and the services that load it, one change after the other;
 * returns what ends it.
 */
export function watchFiles(env, onChange) {
  const watched = foldersOf(env).map(({ folder, loaders }) => ({ folder, loaders, seen: contentsOf(folder) }));
  let timer;
  let last = Promise.resolve();
  const look = async () => {
    const [files, services] = [new Set(), new Set()];
    for (const one of watched) {
      const now = contentsOf(one.folder);
      for (const [name, hash] of now) {
        if (one.seen.get(name) === hash) continue;
        files.add(name);
        for (const service of servicesThatLoad(name, one.loaders)) services.add(service);
      }
      one.seen = now;
    }
    if (files.size === 0) return;
    const inOrder = readers.config.filter((name) => services.has(name));
    await onChange([...files].join(", "), inOrder);
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => (last = last.then(look)), settleMs);
  };
  const watchers = watched.flatMap(({ folder }) => {
    try {
      return watch(folder, { persistent: false }, soon).on("error", () => {});
    } catch {
      return []; // The system watches no more files: a change needs a restart.
    }
  });
  return () => {
    for (const one of watchers) one.close();
    clearTimeout(timer);
  };
}

/** Each folder once, with the names of the files that are loaded there and who loads them. */
function foldersOf(env) {
  const folders = new Map();
  const add = (file, services) => {
    if (!existsSync(file) || !isCode.test(file)) return;
    const loaders = folders.get(dirname(file)) ?? new Map();
    folders.set(dirname(file), loaders.set(basename(file), services));
  };
  add(resolve(root, env.LARKLINE_CONFIG || "larkline.config.ts"), readers.config);
  for (const module of (env.RUNNER_TOOLS ?? "").split(",")) add(resolve(root, module.trim()), readers.tools);
  return [...folders].map(([folder, loaders]) => ({ folder, loaders }));
}

/** Another file of the folder may be imported by any of those that are loaded there. */
function servicesThatLoad(name, loaders) {
  return loaders.get(name) ?? [...loaders.values()].flat();
}

/** The hash of each file of code in a folder, by name. A deleted file is no change: what imports it changes as well. */
function contentsOf(folder) {
  const contents = new Map();
  try {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      if (!entry.isFile() || !isCode.test(entry.name)) continue;
      const text = readFileSync(join(folder, entry.name));
      contents.set(entry.name, createHash("sha256").update(text).digest("hex"));
    }
  } catch {
    // The folder is being replaced: the next change shows the rest.
  }
  return contents;
}
