import { expect, it } from "vitest";
import { watchTier } from "./tier-watch.ts";

const finding = (holds: boolean) => [{ tier: "bwrap", holds, reason: "read a secret file" }];

it("reports a tier that fails twice in a row, not one that fails once", async () => {
  const answers = [true, false, true, false, false];
  const lost = Promise.withResolvers<string>();
  let asked = 0;
  watchTier({
    probe: async () => await Promise.resolve(finding(answers[asked++] ?? true)),
    onLost: lost.resolve,
    everyMs: 1,
  });
  expect(await lost.promise).toBe("read a secret file");
  expect(asked).toBe(5);
});

it("reports a proof that cannot be made, and nothing after its end", async () => {
  const lost = Promise.withResolvers<string>();
  watchTier({ probe: () => Promise.reject(new Error("no bwrap")), onLost: lost.resolve, everyMs: 1 });
  expect(await lost.promise).toBe("no bwrap");
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<ReturnType<typeof finding>>();
  const reports: string[] = [];
  const watch = watchTier({
    probe: () => {
      asked.resolve();
      return answer.promise;
    },
    onLost: (reason) => reports.push(reason),
    everyMs: 1,
  });
  await asked.promise;
  watch.stop();
  answer.resolve(finding(false));
  await new Promise((resolve) => setImmediate(resolve));
  expect(reports).toEqual([]);
});
