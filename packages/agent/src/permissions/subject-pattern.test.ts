import { describe, expect, it } from "vitest";
import { matchesSubject, touchesSubject } from "./subject-pattern.ts";

describe("matchesSubject", () => {
  it.each([
    ["git status", "git status"],
    ["git *", "git status"],
    ["git *", "git "],
    ["git * --short", "git status --short"],
    ["*", "ls -la /tmp"],
    ["*", ""],
    ["a*b*c", "a-b-b-c"],
    ["a*b*c", "abc"],
    ["*.example.com", "api.example.com"],
    ["ls; pwd", "ls; pwd"],
    ["ls; git *", "ls; git status"],
    ["a*;b*c", "a1;b2c"],
  ])("%j covers %j", (pattern, subject) => {
    expect(matchesSubject(pattern, subject)).toBe(true);
  });

  it.each([
    ["git status", "git status -s"],
    ["git *", "git"],
    ["git *", "xgit status"],
    ["git *", "Git status"],
    ["a*b", "a"],
    ["ab*b", "ab"],
    ["a*b*c", "acb"],
    ["git.status", "git status"],
    ["", "x"],
  ])("%j does not cover %j", (pattern, subject) => {
    expect(matchesSubject(pattern, subject)).toBe(false);
  });

  it.each([";", "|", "&", "<", ">", "$", "(", ")", "`", "\n", "\r\n", "\\\n", "&&", "$(x)", "<(x)"])(
    "a star never crosses %j: what comes after it is another command",
    (separator) => {
      expect(matchesSubject("git *", `git status${separator}rm -rf /`)).toBe(false);
      expect(matchesSubject("git * --end", `git status${separator}rm -rf / --end`)).toBe(false);
      expect(matchesSubject("*", `git${separator}rm`)).toBe(false);
      expect(matchesSubject("git *x*", `git x${separator}`)).toBe(false);
    },
  );

  it("takes time in proportion to the subject, whatever the pattern", () => {
    const pattern = "a*".repeat(400);
    const misleading = `${"ab".repeat(400)}`;
    const subject = "a".repeat(2_000_000);
    const started = process.threadCpuUsage();
    expect(matchesSubject(`${pattern}b`, subject)).toBe(false);
    expect(matchesSubject(`*${misleading}*c`, "ab".repeat(1_000_000))).toBe(false);
    // Quadratic time would be minutes.
    expect(process.threadCpuUsage(started).user / 1_000).toBeLessThan(5_000);
  });
});

describe("touchesSubject", () => {
  it("finds the command wherever it stands among others", () => {
    for (const subject of ["rm x", "true; rm x", "ls && rm x", "echo $(rm x)", "ls\n  rm x", "a | rm x & b"]) {
      expect(touchesSubject("rm *", subject)).toBe(true);
    }
    for (const subject of ["ls rm", "farm x", ""]) expect(touchesSubject("rm *", subject)).toBe(false);
  });
});
