import { readdirSync } from "node:fs";
import { resolveConfig } from "@larkline/process/config";
import { describe, expect, it } from "vitest";
import { quotedIn, root, rowsUnder, sourcesBelow, textOf } from "./document.ts";

interface Read {
  name: string;
  /** Present when the code holds it as a literal. */
  default?: string;
}

const readers =
  /[rR]eader(?:\(env\))?\.(?:text|secret|integer|port|flag|url|choice|list)\(\s*([`"])([^`"]+)\1(?=([^;]{0,200}))/g;

function namesFrom(template: string): string[] {
  return ["ANTHROPIC", "OPENAI"].map((vendor) => template.replace("${vendor}", vendor));
}

function literalDefault(rest: string): string | undefined {
  const [, text, digits] = /^[^()]*?\bdefault: (?:"([^"]*)"|([\d_]+))/.exec(rest) ?? [];
  return text ?? digits?.replaceAll("_", "");
}

function readsOf(source: string): Read[] {
  return [...source.matchAll(readers)].flatMap(([, , name = "", rest = ""]) => {
    const value = literalDefault(rest);
    const names = name.includes("${") ? namesFrom(name) : [name];
    return names.map((one) =>
      value === undefined ? { name: one } : { name: one, default: value },
    );
  });
}

/** Processes: the apps, a mode of one of them, and the page of the demo. */
const apps = [...readdirSync(`${root}/apps`), "playground"];
/** Reads `FEISHU_APP_ID` and its secret. */
const firstApp = "packages/process/src/config/bot-config.ts";
/** A runner that a user of Larkline writes is configured like ours. */
const elsewhere: Readonly<Record<string, readonly string[]>> = {
  "agent-worker": [
    "apps/agent-worker/src/config.ts",
    "packages/process/src/config/provider-config.ts",
    firstApp,
  ],
  ingress: ["apps/ingress/src/config.ts", "apps/ingress/src/callers.ts", firstApp],
  cli: ["apps/cli/src/config.ts", "apps/cli/src/chat/chat.ts", firstApp],
  playground: ["simulator/src/playground/playground.ts"],
  "tool-runner": ["apps/tool-runner/src/app.ts", "packages/runner/src/runner-config.ts"],
};
const byApp = new Map(
  apps.map((app) => [
    app,
    (elsewhere[app] ?? [`apps/${app}/src/config.ts`]).flatMap((path) => readsOf(textOf(path))),
  ]),
);
const launcher = sourcesBelow("infra/dev").join("\n");

const rows = rowsUnder(textOf("docs/configuration.md"), "variable").map(
  ([variable = "", readBy = "", standard = ""]) => ({
    variable: variable.replaceAll("`", ""),
    readBy: readBy.split(",").map((name) => name.trim()),
    standard,
  }),
);

describe("docs/configuration.md", () => {
  it.each(apps)("names every variable that %s reads, with its default", (app) => {
    const reads = byApp.get(app) ?? [];
    expect(reads).not.toEqual([]);
    for (const { name, default: standard } of reads) {
      const row = rows.find(({ variable, readBy }) => variable === name && readBy.includes(app));
      expect(row, `${app} reads ${name}`).toBeDefined();
      if (standard !== undefined) {
        expect(quotedIn(row?.standard ?? ""), `default of ${name} in ${app}`).toContain(standard);
      }
    }
  });

  it("names every variable that npm start reads", () => {
    const direct = [...launcher.matchAll(/\b(?:process\.)?env\.([A-Z_]{3,})/g)].map(
      ([, name = ""]) => name,
    );
    const ports = [...launcher.matchAll(/"([A-Z_]+_PORT)"/g)].map(([, name = ""]) => name);
    const aliases = ["PATH", "LC_MESSAGES", "LANG"];
    const named = rows
      .filter(({ readBy }) => readBy.includes("npm start"))
      .map(({ variable }) => variable);
    expect(named).toEqual(
      expect.arrayContaining([...direct, ...ports].filter((name) => !aliases.includes(name))),
    );
  });

  it("names no reader that does not read the variable", () => {
    for (const { variable, readBy } of rows) {
      for (const reader of readBy) {
        const reads = byApp.get(reader)?.some(({ name }) => name === variable);
        expect(reads ?? launcher.includes(variable), `${reader} reads ${variable}`).toBe(true);
      }
    }
  });

  it("names every variable once", () => {
    expect(new Set(rows.map(({ variable }) => variable)).size).toBe(rows.length);
  });

  it("names the limits of larkline.config.ts with their defaults", () => {
    const source = textOf("packages/process/src/config/larkline-config.ts");
    const block = /const defaultLimits[^{]*\{([^}]*)\}/.exec(source)?.[1] ?? "";
    const limits = [...block.matchAll(/(\w+): ([\d_]+)/g)].map(([, name = "", value = ""]) => [
      `limits.${name}`,
      Number(value.replaceAll("_", "")),
    ]);
    const keys = rowsUnder(textOf("docs/configuration.md"), "key");
    const named = keys.flatMap(([key = "", standard = ""]) =>
      key.startsWith("`limits.")
        ? [[key.replaceAll("`", ""), Number(standard.replaceAll(",", ""))]]
        : [],
    );
    expect(limits).not.toEqual([]);
    expect(named).toEqual(limits);
  });

  it("names the bounds of retention with their defaults", () => {
    const resolved = resolveConfig({});
    const { retention } = resolved.ok ? resolved.value : expect.fail(resolved.error);
    const named = rowsUnder(textOf("docs/configuration.md"), "key").flatMap(
      ([key = "", standard = ""]) =>
        key.startsWith("`retention.")
          ? [[key.slice(11, -1), Number(standard.replaceAll(",", ""))]]
          : [],
    );
    expect(Object.fromEntries(named)).toEqual(retention);
  });

  it("names the settings of approvals with their defaults", () => {
    const resolved = resolveConfig({});
    const {
      roles: _roles,
      entries: _entries,
      approvers: _approvers,
      ...settings
    } = resolved.ok ? resolved.value.permissions : expect.fail(resolved.error);
    const named = rowsUnder(textOf("docs/configuration.md"), "key").flatMap(
      ([key = "", standard = ""]) =>
        key.startsWith("`approvals.")
          ? [[key.slice(11, -1), standard.replaceAll(/[`,]/g, "")]]
          : [],
    );
    const written = Object.entries(settings).map(([name, value]) => [
      name,
      value === true ? "on" : String(value),
    ]);
    expect(Object.fromEntries(named)).toEqual({
      approvers: "the requester",
      ...Object.fromEntries(written),
    });
  });
});
