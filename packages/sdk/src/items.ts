import * as helpers from "@larkline/protocol/views/item-helpers";
import type { FunctionCall, FunctionCallOutput, MessageOutputItem, RunItem } from "./wire-types.ts";

// Pure functions on run items, for programs that continue with them. The functions are typed by the schemas; here they
// have the types that are written from those schemas, so that who installs this needs no schemas: hence `as never`.

/** What a run can be given: items of other runs, and messages. */
export type InputItem =
  | RunItem["rawItem"]
  | {
      type?: "message";
      role: "user" | "assistant";
      content:
        | string
        | ({ type: "input_text"; text: string } | { type: "input_image"; image_url: string })[];
    };

/** The raw item for the next run: a copy without absent members. What is no plain object throws an {@link AgentsError}. */
export const toInputItem: (item: Pick<RunItem, "rawItem">) => InputItem =
  helpers.toInputItem as never;

/** What a model has produced, for the next run: the same items in the same order, as copies. */
export const toInputItems: (response: { output: readonly RunItem["rawItem"][] }) => InputItem[] =
  helpers.toInputItems as never;

/** The last content of a message: its text or refusal; empty for other items. */
export const extractLastContent: (item: RunItem["rawItem"]) => string =
  helpers.extractLastContent as never;

/** The text that a message ends with; null when it ends with something else, and for other items. */
export const extractLastText: (item: RunItem["rawItem"]) => string | null =
  helpers.extractLastText as never;

/** A text as a list of one user message; a list as a deep copy. */
export const inputToNewInputList: (input: string | readonly InputItem[]) => InputItem[] =
  helpers.inputToNewInputList as never;

/** The texts of all messages among the items, joined without separator. */
export const textMessageOutputs: (items: readonly RunItem[]) => string =
  helpers.textMessageOutputs as never;

/** The texts of a message, joined without separator. */
export const textMessageOutput: (item: MessageOutputItem) => string =
  helpers.textMessageOutput as never;

/** The output of a call, for the input of another run. What is no text becomes JSON. */
export const toolCallOutputItem: (
  call: Pick<FunctionCall, "call_id">,
  output: unknown,
) => FunctionCallOutput = helpers.toolCallOutputItem as never;

export { AgentsError, ModelBehaviorError } from "@larkline/protocol/views/item-helpers";
