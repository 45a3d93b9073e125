import { expect, it } from "vitest";
import { modelFailure } from "@larkline/model";
import { askWithoutRefused } from "./model-steps.ts";
import { startRun, step } from "./turn/turn.fixture.ts";

const { history } = startRun();

async function timesAsked(failure: ReturnType<typeof modelFailure>): Promise<number> {
  let times = 0;
  await askWithoutRefused(history, async () => {
    times += 1;
    return await Promise.resolve(step("", { failure }));
  });
  return times;
}

it("a vendor is asked again without parts of the request where its failure blames the request, and only then", async () => {
  const failure = modelFailure("api_bad_request", "no images, please");
  expect(await timesAsked(failure)).toBe(1);
  expect(await timesAsked({ ...failure, blames: "request" })).toBeGreaterThan(1);
  expect(await timesAsked({ ...failure, blames: "request", partial: true })).toBe(1);
});
