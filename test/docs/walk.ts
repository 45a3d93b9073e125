import { dirname, join, normalize } from "node:path";
import { textOf } from "./document.ts";

/** One file of a walk through the sources. */
export interface Stop {
  /** Path from the checkout. */
  path: string;
  /** Files before it in the same list, one of which imports it; the first of the list has none. */
  before: string[];
}

const sources = /\]\((\.\.\/(?:apps|packages)\/[^)]+\.(?:ts|lua))\)/g;

/** The files that a section of a document links to, in order; each list of the section is a walk of its own. */
export function stopsOf(document: string, heading: string): Stop[] {
  const text = textOf(document);
  const [section = ""] = text.slice(text.indexOf(`## ${heading}\n`) + 3).split("\n## ");
  const lists = section.split(/\n\n(?!\d+\. )/).filter((part) => /^\d+\. /m.test(part));
  return lists.flatMap((list) => {
    const links = [...list.matchAll(sources)].map(([, link = ""]) =>
      normalize(join(dirname(document), link)),
    );
    const paths = [...new Set(links)];
    return paths.map((path, index) => ({ path, before: paths.slice(0, index) }));
  });
}

function importsOf(path: string): { names: string[]; from: string }[] {
  const statements = textOf(path).matchAll(
    /^(?:import|export) (?:type )?([^;]*?)\s*from "([^"]+)"/gm,
  );
  return [...statements].map(([, clause = "", from = ""]) => ({
    names: clause.match(/\w+/g) ?? [],
    from,
  }));
}

function exportsOf(path: string): string[] {
  const declared = textOf(path).matchAll(
    /^export (?:async )?(?:abstract )?(?:function\*?|const|class|interface|type) (\w+)/gm,
  );
  return [...declared].map(([, name = ""]) => name);
}

/** Whether a file imports another one: by its path, by a name of it from its package, or, a script, by its name. */
export function imports(path: string, target: string): boolean {
  if (target.endsWith(".lua")) {
    return textOf(path).includes(`"${target.split("/").at(-1)?.replace(".lua", "")}"`);
  }
  const workspace = `@larkline/${target.split("/")[1] ?? ""}`;
  const exported = new Set(exportsOf(target));
  return importsOf(path).some(({ names, from }) => {
    if (from.startsWith(".")) return join(dirname(path), from) === target;
    return (
      (from === workspace || from.startsWith(`${workspace}/`)) &&
      names.some((name) => exported.has(name))
    );
  });
}
