import type { OperatorOrder, OrderResult } from "@larkline/protocol";
import type { PagesDeps } from "./pages.ts";
import type { Word } from "./words.ts";

/** The name of the console where a person's would stand. */
export const consoleId = "console";

/** Shorter than a page may take. */
const patienceMs = 5_000;

/** What is said of each thing that can come of an order. */
export type OrderWords = Readonly<Record<"done" | "nothing", Word>> & Partial<Record<OrderResult["result"], Word>>;

/** Has a worker do what the operator wants, and keep a record of it. */
export async function order(
  { backend }: Pick<PagesDeps, "backend">,
  act: OperatorOrder["act"],
  words: OrderWords,
): Promise<{ word: Word; isDone: boolean; result?: OrderResult }> {
  const handed = await backend.orders.handIn({ v: 1, by: consoleId, act }, patienceMs);
  if (handed.state === "uncertain") return { word: "orderUncertain", isDone: false };
  if (handed.state === "not_taken" || handed.result.result === "late") return { word: "orderNotTaken", isDone: false };
  const { result } = handed;
  const word = words[result.result] ?? words.nothing;
  return { word, isDone: result.result === "done", result };
}

/** Has a record made of what the operator is about to be shown or to do; the word that says why not, if there is none. */
export async function noted(
  deps: Pick<PagesDeps, "backend">,
  record: Omit<Extract<OperatorOrder["act"], { do: "note" }>, "do">,
): Promise<Word | undefined> {
  const { word, isDone } = await order(deps, { do: "note", ...record }, { done: "shown", nothing: "orderUncertain" });
  return isDone ? undefined : word;
}
