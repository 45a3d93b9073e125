import { existsSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { errorCodes } from "@larkline/protocol/error";
import { isTool, runTool } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import dice from "../fixtures/dice-tool.ts";
import { documents, root, rowsUnder, sourcesAndScripts, textOf } from "./document.ts";
import { pageWithTables, tables } from "./tables.ts";
import { imports, stopsOf } from "./walk.ts";

function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s-]/gu, "")
    .replaceAll(" ", "-");
}

function anchorsIn(path: string): string[] {
  return [...textOf(path).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchorOf(heading));
}

function linksIn(path: string): { target: string; anchor: string }[] {
  return [...textOf(path).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, link = ""]) => link)
    .filter((link) => !/^https?:/.test(link))
    .map((link) => {
      const [file = "", anchor = ""] = link.split("#");
      return { target: file === "" ? path : normalize(join(dirname(path), file)), anchor };
    });
}

describe.each(documents())("%s", (path) => {
  it("links to files and headings that exist", () => {
    for (const { target, anchor } of linksIn(path)) {
      expect(existsSync(join(root, target)), target).toBe(true);
      if (anchor !== "") expect(anchorsIn(target), `#${anchor}`).toContain(anchor);
    }
  });

  it("names files and folders that exist", () => {
    const named = textOf(path).matchAll(
      /(?<![\w./<])(?:apps|docs|infra|packages|test)\/[\w@.*/-]*\w/g,
    );
    for (const [name] of named) {
      if (name.includes("*") || name.endsWith("/dice.ts")) continue;
      expect(existsSync(join(root, name)), name).toBe(true);
    }
  });
});

/** What people write on a page: without tables that programs write into it. */
function proseOf(path: string): string {
  return textOf(path).replaceAll(/^<!-- (\w+):begin -->$.*?^<!-- \1:end -->$/gms, "");
}

describe("the pages of docs", () => {
  it.each(Object.keys(tables))(
    "show the tables that the code has: %s (npm run doc-tables)",
    (page) => {
      expect(textOf(page)).toBe(pageWithTables(page));
    },
  );

  const vague =
    /\b(?:nobody|whoever|somebody|anybody|stands? in|goes on|for ever|what is not|what cannot be|signs? of life|(?:has|have|had|gets?|got|gives?|gave|given) the word|told|hears?|heard|puts? away)\b[^.\n]{0,40}/gi;

  const commentsIn = (path: string, text: string): string[] =>
    text.match(
      /\.(?:py|sh|yaml)$|\/Dockerfile$/.test(path)
        ? /^\s*#.*$|"{3}[^]*?"{3}/gm
        : /\/\*[^]*?\*\/|(?<!:)\/\/.*$|^\s*--.*$/gm,
    ) ?? [];

  /** Names of tests and groups: the first argument, before a function. */
  const namesIn = (text: string): string[] =>
    [
      ...text.matchAll(
        /(?:\b(?:it|test|describe)(?:\.\w+)*|\))\(\s*(["`])((?:(?!\1).)+)\1,\s*(?:async )?[({]/g,
      ),
    ].map(([, , name = ""]) => name);

  it("so do the comments of all sources and scripts, and the names of tests", () => {
    const texts = sourcesAndScripts();
    const names = texts.flatMap(({ text }) => namesIn(text));
    const comments = texts.flatMap(({ path, text }) => commentsIn(path, text));
    expect(names.length).toBeGreaterThan(3_000);
    expect(comments.length).toBeGreaterThan(8_000);
    const found = texts.flatMap(({ path, text }) =>
      [...namesIn(text), ...commentsIn(path, text)].flatMap((words) =>
        [...words.matchAll(vague)].map(([word]) => `${path}: ${word}`),
      ),
    );
    expect(found).toEqual([]);
  });

  // CONTRIBUTING.md quotes the list.
  const english = documents().filter((path) => path !== "CONTRIBUTING.md");

  it.each(english)("%s names its actors and says things directly", (path) => {
    expect(
      proseOf(path)
        .replaceAll(/```.*?```|`[^`\n]*`/gs, "")
        .match(vague) ?? [],
    ).toEqual([]);
  });

  it("would find a sentence without an actor", () => {
    expect("What is not signed is refused.".match(vague)).not.toBeNull();
    expect("Nothing waits for ever.".match(vague)).not.toBeNull();
  });
});

describe("README.md", () => {
  const [english, chinese] = [textOf("README.md"), textOf("README.zh.md")];
  const wordsOf = (text: string): number =>
    text.split(/\s+/).filter((word) => /[a-z]/i.test(word)).length;

  it("has at most 600 words, and the Chinese one at most 1,200 characters", () => {
    expect(wordsOf(english)).toBeLessThan(600);
    expect([...chinese.matchAll(/\p{Script=Han}/gu)].length).toBeLessThan(1_200);
  });

  it("says the same in Chinese: the same commands, the same links", () => {
    const commandsOf = (text: string) =>
      [...text.matchAll(/```(?:sh|ts)\n([\s\S]*?)```/g)].map(([, code = ""]) =>
        code.replaceAll(/ +#.*$/gm, ""),
      );
    const targetsOf = (text: string) =>
      [...text.matchAll(/\]\(([^)]*)\)/g)].map(([, target = ""]) => target).slice(1);
    const inChinese = (target: string) => target.replace(/docs\/(images\/)?/, "docs/$1zh/");
    expect(commandsOf(chinese)).toEqual(commandsOf(english));
    expect(targetsOf(chinese)).toEqual(
      targetsOf(english).map((target) =>
        existsSync(join(root, inChinese(target))) ? inChinese(target) : target,
      ),
    );
  });

  it("names npm scripts that exist", () => {
    const { scripts } = JSON.parse(textOf("package.json")) as { scripts: Record<string, string> }; // our own file
    const named = [...textOf("README.md").matchAll(/npm (?:run )?([a-z0-9-]+)/g)].map(
      ([, name = ""]) => name,
    );
    expect(named.length).toBeGreaterThan(0);
    expect(Object.keys(scripts)).toEqual(
      expect.arrayContaining(named.filter((name) => name !== "and")),
    );
  });

  it("shows a tool that works", async () => {
    expect(textOf("README.md")).toContain(textOf("test/fixtures/dice-tool.ts"));
    expect(isTool(dice)).toBe(true);
    const context = {
      callId: "c1",
      turnId: "t1",
      actor: { app: "api", userId: "u", chatId: "c" },
      authority: { by: "policy" } as const,
      signal: new AbortController().signal,
      progress: () => undefined,
      log: () => undefined,
    };
    expect(await runTool(dice, { argumentsText: '{"sides":2}', context })).toMatchObject({
      ok: true,
    });
    expect(await runTool(dice, { argumentsText: '{"sides":1}', context })).toMatchObject({
      ok: false,
    });
  });
});

describe("docs/api.md", () => {
  it("lists every error code with what the code says about it", () => {
    const rows = rowsUnder(textOf("docs/api.md"), "code").map(([code = "", retryable, advice]) => [
      code.slice(1, -1),
      retryable,
      advice,
    ]);
    expect(rows).toEqual(
      Object.entries(errorCodes).map(([code, { retryable, suggestion }]) => [
        code,
        retryable ? "yes" : "no",
        suggestion,
      ]),
    );
  });
});

describe("docs/architecture.md", () => {
  const text = textOf("docs/architecture.md");

  it("walks one message through files that import each other", () => {
    const stops = stopsOf("docs/architecture.md", "The life of a message");
    const walks = stops.filter(({ before }) => before.length === 0).map(({ path }) => path);
    expect(walks).toEqual([
      "apps/ingress/src/server.ts",
      "apps/agent-worker/src/worker.ts",
      "packages/runner/src/runner.ts",
    ]);
    const stray = stops.filter(
      ({ path, before }) => before.length > 0 && !before.some((file) => imports(file, path)),
    );
    expect(stray.map(({ path }) => path)).toEqual([]);
  });

  it("gives the deadlines that the code has", () => {
    const rows = rowsUnder(text, "name");
    expect(rows.length).toBeGreaterThan(0);
    for (const [name = "", value = "", file = ""] of rows) {
      const digits = value.replaceAll(",", "").split("").join("_?");
      const definition = new RegExp(`\\b${name.slice(1, -1)}\\b[^;{}\\n]*?\\b${digits}\\b`);
      expect(definition.test(textOf(file.slice(1, -1))), `${name} ${value} in ${file}`).toBe(true);
    }
  });
});
