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
  recording: "application/json; charset=utf-8",
  ts: "text/javascript; charset=utf-8",
};

const names = [
  "index.html",
  "style.css",
  "chat.css",
  "card.css",
  "icons.css",
  "icon.svg",
  "example.recording",
  "app.ts",
  "card-controls.ts",
  "card-form.ts",
  "card-json.ts",
  "card-table.ts",
  "card-typing.ts",
  "card-view.ts",
  "chat-list.ts",
  "chat-panel.ts",
  "client-error.ts",
  "composer.ts",
  "delta.ts",
  "dialogs.ts",
  "element.ts",
  "emoji.ts",
  "inspector.ts",
  "fault-panel.ts",
  "limits-panel.ts",
  "markdown.ts",
  "markdown-view.ts",
  "message-content.ts",
  "message-view.ts",
  "player.ts",
  "recorder.ts",
  "recording.ts",
  "request.ts",
  "send-menu.ts",
  "store.ts",
  "toast.ts",
  "usage.ts",
  "view-node.ts",
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
