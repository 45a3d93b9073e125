import { describe, expect, it } from "vitest";
import { riskOf } from "./risk-finding.ts";

function patternsIn(input: Record<string, unknown>): string[] {
  return riskOf(input).map(({ pattern }) => pattern);
}

describe("riskOf", () => {
  it.each([
    "rm -rf /",
    "rm -fr /",
    "RM -RF /",
    "rm -r -f /",
    "rm -f -r /",
    "rm -Rf /",
    "rm -v -rf /",
    "rm -vrf /",
    "rm --recursive --force /",
    "rm --force --recursive /",
    "rm --rec --fo /",
    "rm -r --force /",
    "rm / -rf",
    "rm -r / -f",
    "rm\t-rf\t/",
    "rm  -rf /",
    "/bin/rm -rf /",
    "\\rm -rf /",
    "'rm' \"-rf\" /",
    "rm${IFS}-rf /",
    "rm \\\n -rf /",
    "ls && sudo rm -rf /",
    "echo $(rm -rf /)",
    "cd /\nrm -rf .",
  ])("EE-38: finds rm -rf in %j", (command) => {
    expect(patternsIn({ command })).toEqual(["rm -rf"]);
  });

  it.each(["rm -r dir", "rm -f file", "rm file; ls -rf", "farm -rf", "rm", "perform -rf", "-rf"])(
    "finds no rm -rf in %j",
    (command) => {
      expect(patternsIn({ command })).toEqual([]);
    },
  );

  it.each(["drop table users", "DROP TABLE users", "Drop\n  Table x", "drop/* */table x"])(
    "EE-38: finds drop table in %j",
    (sql) => {
      expect(patternsIn({ sql })).toEqual(["drop table"]);
    },
  );

  it("finds a pattern in any string at any depth, in lists of words and in fields that are switched on", () => {
    expect(patternsIn({ a: [{ b: { c: ["x", "rm -rf /"] } }] })).toEqual(["rm -rf"]);
    expect(patternsIn({ argv: ["rm", "-r", "-f", "/"] })).toEqual(["rm -rf"]);
    expect(patternsIn({ overwrite: true })).toEqual(["overwrite"]);
    expect(patternsIn({ mode: "OVERWRITE" })).toEqual(["overwrite"]);
    expect(patternsIn({ overwrite: false, other: null, drop: { table: 1 } })).toEqual([]);
  });

  it("EE-38: gives one finding per pattern, however often it occurs, with its reason in English", () => {
    const findings = riskOf({ a: "rm -rf a; rm -rf b", b: "drop table x", c: "DROP TABLE y", d: "overwrite" });
    expect(findings).toEqual([
      { pattern: "rm -rf", reason: expect.stringMatching(/^[ -~]+$/) },
      { pattern: "drop table", reason: expect.stringMatching(/^[ -~]+$/) },
      { pattern: "overwrite", reason: expect.stringMatching(/^[ -~]+$/) },
    ]);
  });

  it("survives huge and hostile inputs, in time that grows with their size at most", () => {
    let deep: unknown = "rm -rf /";
    for (let depth = 0; depth < 100_000; depth++) deep = [deep];
    const started = process.threadCpuUsage();
    expect(patternsIn({ deep })).toEqual(["rm -rf"]);
    for (const unit of ["rm ", "rm -r ", "drop ", "drop/*", "-rf", "\\\n", "$IFS", "( "]) {
      expect(patternsIn({ text: unit.repeat(1_000_000) })).toEqual([]);
    }
    expect(process.threadCpuUsage(started).user / 1_000).toBeLessThan(5_000);
  });
});
