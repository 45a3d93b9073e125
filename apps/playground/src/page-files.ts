import { readFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";

export interface PageFile {
  contentType: string;
  body: string;
}

const contentTypes: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
  ts: "text/javascript; charset=utf-8",
};

const names = [
  "index.html",
  "style.css",
  "icon.svg",
  "app.ts",
  "chat-panel.ts",
  "element.ts",
  "inspector.ts",
  "markdown.ts",
  "message-bubble.ts",
  "request.ts",
  "store.ts",
  "words.ts",
] as const;

/** The page's files by name, read once; the browser gets TypeScript with its types taken out. */
export async function loadPageFiles(): Promise<ReadonlyMap<string, PageFile>> {
  const entries = names.map(async (name): Promise<[string, PageFile]> => {
    const source = await readFile(new URL(`page/${name}`, import.meta.url), "utf8");
    const extension = name.slice(name.lastIndexOf(".") + 1);
    const body = extension === "ts" ? stripTypeScriptTypes(source) : source;
    return [name, { contentType: contentTypes[extension] ?? "text/plain", body }];
  });
  return new Map(await Promise.all(entries));
}
