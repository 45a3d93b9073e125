import type { InputItem, ModelResponse, OutputItem } from "@larkline/protocol/views/run-items";
import type { OpenAI } from "@larkline/openai-sdk";
import { describe, expectTypeOf, it } from "vitest";

type VendorInput = OpenAI.Responses.ResponseInputItem;
type VendorOutput = OpenAI.Responses.ResponseOutputItem;
/** The types that we know by name; the others are kept as they are. */
type KnownOutput = Extract<VendorOutput, { type: OutputItem["type"] }>;

describe("our types of run items and the vendor's", () => {
  it("RI-36: what we give to a model is what the vendor takes", () => {
    expectTypeOf<InputItem>().not.toBeAny();
    expectTypeOf<InputItem>().toExtend<VendorInput>();
    expectTypeOf<InputItem[]>().toExtend<OpenAI.Responses.ResponseInput>();
  });

  it("what the vendor's models produce is what we take", () => {
    expectTypeOf<KnownOutput>().toExtend<OutputItem>();
    expectTypeOf<KnownOutput[]>().toExtend<ModelResponse["output"]>();
  });
});
