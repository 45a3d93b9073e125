import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { replyTypeOf, scriptsBeside, runScript } from "./lua.ts";
import { afterAll, expect, inject, it } from "vitest";
import { closeRedis, connectRedis } from "./connection.ts";
import { scriptTypes } from "./script-types.ts";

const folder = mkdtempSync(join(tmpdir(), "larkline-scripts-"));
mkdirSync(join(folder, "lua"));
const redis = connectRedis(inject("redisUrl"));
afterAll(async () => {
  await closeRedis(redis);
  rmSync(folder, { recursive: true });
});

function scriptOf(name: string, header: string, body: string) {
  writeFileSync(join(folder, "lua", `${name}.lua`), `${header}\n\n${body}\n`);
  return scriptsBeside<Record<never, never>>(pathToFileURL(join(folder, "any.ts")).href)(name);
}

it("the types of replies are those of the scripts' headers: `npm run script-types` writes them", () => {
  expect(readFileSync(new URL("./script-replies.ts", import.meta.url), "utf8")).toBe(scriptTypes());
});

it("a reply has the names of its header, whatever the order in which the script gives its values", async () => {
  const header = `-- ARGV a b
-- REPLY
--   first   text      one
--   second  integer?
--   third   flag
--   fourth  rows      of each
--   fifth   'x'|'y'
--   sixth   texts
-- ROW
--   name   text
--   other  text?`;
  const body = `local rows = {row {other = b, name = a}, row {name = b}}
return respond {sixth = {a, b}, fifth = 'y', fourth = rows, third = a == b, first = a}`;
  const named = scriptOf("named", header, body);
  expect(await runScript(redis, named, {}, { a: "1", b: "2" })).toEqual({
    first: "1",
    third: false,
    fourth: [{ name: "1", other: "2" }, { name: "2" }],
    fifth: "y",
    sixth: ["1", "2"],
  });
  expect(replyTypeOf(named)).toBe(
    '{ first: string; second?: number; third: boolean; fourth: { name: string; other?: string }[]; fifth: "x" | "y"; sixth: string[] }',
  );
});

it("a reply of several kinds names its own, and nil is none", async () => {
  const header = `-- ARGV kind
-- REPLY nil
-- REPLY busy
-- REPLY done
--   count  integer`;
  const body = `if kind == 'busy' then return respond('busy') end
return kind == 'done' and respond('done', {count = 3})`;
  const kinds = scriptOf("kinds", header, body);
  const replies = ["busy", "done", ""].map(
    async (kind) => await runScript(redis, kinds, {}, { kind }),
  );
  expect(await Promise.all(replies)).toEqual([
    { reply: "busy" },
    { reply: "done", count: 3 },
    undefined,
  ]);
  expect(replyTypeOf(kinds)).toBe(
    'undefined | { reply: "busy" } | { reply: "done"; count: number }',
  );
});

it("a reply that lacks a value of the header, or is of no kind of it, is refused", async () => {
  const lacking = scriptOf("lacking", "-- REPLY\n--   count  integer", "return respond {}");
  await expect(runScript(redis, lacking, {})).rejects.toThrow(
    "the script lacking has answered without count",
  );
  const unknown = scriptOf("unknown", "-- REPLY done", "return {'other'}");
  await expect(runScript(redis, unknown, {})).rejects.toThrow(
    "the script unknown has another reply than its header names",
  );
});

it("an error of a function that the script has called stays an error", async () => {
  const failing = scriptOf(
    "failing",
    "-- REPLY\n--   count  integer",
    "return respond {err = 'NOPE it is full'}",
  );
  await expect(runScript(redis, failing, {})).rejects.toThrow("NOPE it is full");
});
