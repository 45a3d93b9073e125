import { readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";

const shownFrames = 4;

/**
 * Where the author of the module at `path` looks for the error of its import: the line of a syntax error, or the calls
 * that led to a throw. Indented lines, each after a line break; empty where nothing is known.
 */
export function placeOfError(error: unknown, path: string | undefined): string {
  if (!(error instanceof Error)) return "";
  const syntax = error instanceof SyntaxError ? (lineOf(error) ?? lineIn(path)) : undefined;
  return (syntax ?? framesOf(error)).map((line) => `\n    ${line}`).join("");
}

/** The calls outside of Node and of Larkline's own packages. */
function framesOf({ stack = "" }: Error): string[] {
  const frames = stack
    .split("\n")
    .filter(
      (line) =>
        /^\s+at /.test(line) &&
        !/\(?node:|\/packages\/\w|\/apps\/[\w-]+\/src\/|\/dist\//.test(line),
    );
  return frames.slice(0, shownFrames).map((line) => line.trim().replace("file://", ""));
}

/** The head of the stack of a syntax error: `file:line`, the line, a mark below it. */
function lineOf({ stack = "" }: Error): string[] | undefined {
  const head = stack.split("\n\n")[0]?.split("\n") ?? [];
  if (!/:\d+$/.test(head[0] ?? "")) return undefined;
  const mark = head.findIndex((line) => /^\s*\^+\s*$/.test(line));
  return mark < 1 ? head.slice(0, 1) : [head[0] ?? "", head[mark - 1] ?? "", head[mark] ?? ""];
}

/** Node names no place of an error in JavaScript; its parser of TypeScript, which reads both, does. */
function lineIn(path: string | undefined): string[] | undefined {
  if (path === undefined) return undefined;
  try {
    stripTypeScriptTypes(readFileSync(path, "utf8"), { sourceUrl: path });
    return undefined; // the error is in a module that this one imports
  } catch (error) {
    return error instanceof Error ? lineOf(error) : undefined;
  }
}
