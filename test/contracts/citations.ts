import { glob, readFile } from "node:fs/promises";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";

const repository = fileURLToPath(new URL("../..", import.meta.url));

/** A test whose title begins with numbers of the checklists. */
export interface Citation {
  file: string;
  line: number;
  items: string[];
}

const one = String.raw`(?:AL|AT|CM|EE|RI|SA)-\d+(?:\.\.\d+)?`;
/** The first argument of a test: `it("AL-4, AL-5: ...`, also after `it.each(...)`. */
const title = new RegExp(String.raw`([\w.]*|\))\(\s*["'\x60](${one}(?:, ${one})*): `, "g");

/** `AL-4..6` stands for three items. */
function itemsOf(text: string): string[] {
  return text.split(", ").flatMap((part) => {
    const [list = "", first = "", last = first] = part.split(/-|\.\./);
    const count = Number(last) - Number(first) + 1;
    return Array.from({ length: count }, (_, index) => `${list}-${Number(first) + index}`);
  });
}

/** The citations in a source. Tests that do not run cite nothing. */
export function citationsIn(file: string, source: string): Citation[] {
  const citations: Citation[] = [];
  for (const { 1: callee = "", 2: items = "", index } of source.matchAll(title)) {
    if (/\.(?:skip|todo|fails)$|^describe/.test(callee)) continue;
    citations.push({
      file,
      line: source.slice(0, index).split("\n").length,
      items: itemsOf(items),
    });
  }
  return citations;
}

/** The citations of every test and suite of the repository. */
export async function readCitations(): Promise<Citation[]> {
  const patterns = ["packages", "apps", "test"].flatMap((folder) =>
    ["test", "suite"].map((kind) => `${folder}/**/*.${kind}.ts`),
  );
  const files = glob(patterns, {
    cwd: repository,
    exclude: (path) =>
      path.split(sep).some((name) => name === "node_modules" || name === "contracts"),
  });
  const citations: Citation[] = [];
  for await (const path of files) {
    citations.push(...citationsIn(path, await readFile(join(repository, path), "utf8")));
  }
  return citations;
}
