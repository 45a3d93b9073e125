import { globSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The checkout. */
export const root = fileURLToPath(new URL("../..", import.meta.url));

/** Text of a file of the checkout. */
export function textOf(path: string): string {
  return readFileSync(`${root}/${path}`, "utf8");
}

/** All documents in Markdown, as paths from the checkout. */
export function documents(): string[] {
  return globSync(["*.md", "{docs,apps,packages,infra,simulator,test}/**/*.md"], {
    cwd: root,
    exclude: ["**/node_modules/**"],
  });
}

/** Texts of the TypeScript or JavaScript files below a folder, tests left out. */
export function sourcesBelow(folder: string): string[] {
  const names = readdirSync(`${root}/${folder}`, { recursive: true, encoding: "utf8" });
  return names
    .filter((name) => /\.(?:ts|mjs)$/.test(name) && !/\.(?:test|fixture|suite)\.ts$/.test(name))
    .map((name) => textOf(`${folder}/${name}`));
}

/** The sources, tests and scripts of the checkout, without generated and built files. */
export function sourcesAndScripts(): { path: string; text: string }[] {
  const patterns = [
    "{apps,packages}/*/src/**/*.{ts,tsx,lua}",
    "packages/sandbox/{guest,native}/*",
    "simulator/src/**/*.{ts,tsx}",
    "infra/**/*.{ts,mjs,py,sh,yaml}",
    "infra/**/Dockerfile",
    "test/**/*.{ts,mjs}",
  ];
  const exclude = ["**/node_modules/**", "test/docs/documents.test.ts"];
  return globSync(patterns, { cwd: root, exclude }).map((path) => ({ path, text: textOf(path) }));
}

/** The cells of a row of a table. */
export function cellsOf(line: string): string[] {
  return line
    .replaceAll(String.raw`\|`, "\u0000")
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.replaceAll("\u0000", "|").trim());
}

/** The rows of every table whose first heading is `heading`, without that heading. */
export function rowsUnder(text: string, heading: string): string[][] {
  const rows: string[][] = [];
  let inside = false;
  for (const line of text.split("\n")) {
    const cells = line.startsWith("|") ? cellsOf(line) : [];
    if (cells.length === 0) inside = false;
    else if (cells[0] === heading) inside = true;
    else if (inside && !/^:?-+:?$/.test(cells[0] ?? "")) rows.push(cells);
  }
  return rows;
}

/** The texts in backticks in a cell. */
export function quotedIn(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, quoted = ""]) => quoted);
}
