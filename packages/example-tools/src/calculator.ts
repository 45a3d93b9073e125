import { createRequire } from "node:module";
import { defineTool, type HandlerTool } from "@larkline/tool-kit";
import type * as Mathjs from "mathjs";
import type { MathJsInstance, MathNode } from "mathjs";
import { Type } from "typebox";

const require = createRequire(import.meta.url);

const maxExpressionCharacters = 500;
const maxResultCharacters = 2_000;
const maxCombinatoricsArgument = 10_000;

/**
 * All that an expression may call: functions whose cost is bounded by the size of their arguments.
 * Nothing that makes big matrices of small numbers, loops on request, defines or evaluates code.
 */
const functions = new Set(
  (
    "abs acos acosh asin asinh atan atan2 atanh cbrt ceil combinations conj cos cosh cross cumsum det dot erf exp expm1 " +
    "factorial fix floor gamma gcd hypot im inv lcm log log10 log1p log2 mad max mean median min mod mode norm nthRoot " +
    "permutations pow prod re round sign sin sinh sort sqrt square std sum tan tanh to trace transpose variance"
  ).split(" "),
);

const constants = new Set(
  "pi e tau phi i true false LN2 LN10 LOG2E LOG10E SQRT2 SQRT1_2".split(" "),
);
const nodeTypes = new Set([
  "ArrayNode",
  "ConditionalNode",
  "ConstantNode",
  "FunctionNode",
  "OperatorNode",
  "ParenthesisNode",
  "RelationalNode",
  "SymbolNode",
]);

interface Engine {
  math: MathJsInstance;
  mathjs: typeof Mathjs;
  scope: Map<string, unknown>;
}

/** The number of steps of these grows with the value of their arguments. */
function bounded(
  name: string,
  compute: (n: number, k: number) => unknown,
): (n: unknown, k?: unknown) => unknown {
  return (n, k = n) => {
    for (const value of [n, k]) {
      if (typeof value !== "number" || !(value <= maxCombinatoricsArgument)) {
        throw new Error(`${name} takes numbers up to ${maxCombinatoricsArgument}`);
      }
    }
    return compute(Number(n), Number(k));
  };
}

function createEngine(): Engine {
  // The same package in one file: its 1,200 modules take five times as long to load.
  const mathjs = require("mathjs/lib/browser/math.js") as typeof Mathjs;
  const math = mathjs.create(mathjs.all ?? {}, { number: "number", matrix: "Array" });
  const { combinations, permutations } = math;
  const scope = new Map<string, unknown>([
    ["combinations", bounded("combinations", (n, k) => combinations(n, k))],
    ["permutations", bounded("permutations", (n, k) => permutations(n, k))],
  ]);
  return { math, mathjs, scope };
}

// Loading mathjs takes a tenth of a second: the first calculation pays for it, not the start of every runner.
let engine: Engine | undefined;

function refuseFunction({ mathjs }: Engine, node: MathNode): void {
  if (!mathjs.isFunctionNode(node)) return;
  if (!mathjs.isSymbolNode(node.fn) || !functions.has(node.fn.name)) {
    throw new Error(`function ${JSON.stringify(String(node.fn))} is not available`);
  }
}

function refuseSymbol({ mathjs, math }: Engine, node: MathNode, parent: MathNode | null): void {
  if (!mathjs.isSymbolNode(node)) return;
  if (parent !== null && mathjs.isFunctionNode(parent) && parent.fn === node) return;
  if (constants.has(node.name) || math.Unit.isValuelessUnit(node.name)) return;
  throw new Error(`unknown name ${JSON.stringify(node.name)}`);
}

function refuseConstant({ mathjs }: Engine, node: MathNode): void {
  if (mathjs.isConstantNode(node) && !["number", "boolean"].includes(typeof node.value)) {
    throw new Error("text is not allowed in an expression");
  }
}

/** Throws unless the whole tree is made of what a calculator needs. */
function check(made: Engine, tree: MathNode): void {
  tree.traverse((node: MathNode, _path: string, parent: MathNode | null) => {
    if (!nodeTypes.has(node.type)) {
      throw new Error(`${node.type.replace(/Node$/, "")} is not allowed in an expression`);
    }
    refuseFunction(made, node);
    refuseSymbol(made, node, parent);
    refuseConstant(made, node);
  });
}

function textOf(math: MathJsInstance, value: unknown): string {
  if (value === undefined || typeof value === "function") {
    throw new Error("the expression has no value");
  }
  if (typeof value === "number") {
    if (Number.isNaN(value)) throw new Error("the result is not a number");
    if (!Number.isFinite(value)) throw new Error("the result is infinite or too large to compute");
    if (Number.isSafeInteger(value)) return String(value);
  }
  const text = math.format(value, { precision: 14, lowerExp: -9, upperExp: 15 });
  if (text.length > maxResultCharacters) {
    throw new Error(`the result exceeds ${maxResultCharacters} characters`);
  }
  return text;
}

/** Value of an arithmetic expression as text, to 14 significant digits. Throws with a reason for the model. */
export async function calculate(expression: string): Promise<string> {
  if (expression.trim() === "") throw new Error("the expression is empty");
  if (expression.length > maxExpressionCharacters) {
    throw new Error(`the expression exceeds ${maxExpressionCharacters} characters`);
  }
  const made = (engine ??= createEngine());
  const tree = made.math.parse(expression);
  check(made, tree);
  const value: unknown = tree.compile().evaluate(new Map(made.scope));
  return textOf(made.math, value);
}

/** Computes arithmetic. */
export const calculator: HandlerTool = defineTool({
  name: "calculator",
  description:
    "Evaluates an arithmetic expression exactly as written: operators + - * / ^ % !, comparison, parentheses, lists in " +
    'brackets, functions such as sqrt, log, sin, mean, std, combinations, constants pi and e, units ("5 km / 20 minutes to m/s").',
  title: { zh: "计算", en: "Calculate" },
  summary: { zh: "计算 {expression}", en: "Calculate {expression}" },
  input: Type.Object(
    { expression: Type.String({ minLength: 1, maxLength: maxExpressionCharacters }) },
    { additionalProperties: false },
  ),
  effect: "pure",
  addresses: [],
  risk: "low",
  timeoutMs: 10_000,
  run: ({ expression }) => calculate(expression),
});
