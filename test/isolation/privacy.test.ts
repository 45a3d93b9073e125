import { describe, expect, it } from "vitest";
import { playPrivacy, privacyTable, sampleOf, scenarios } from "./privacy.ts";

describe("what people have written to a bot alone", () => {
  it("AT-9, AT-22, AT-23, AT-27: stays theirs in groups, although the model obeys members, results, files, pages and other agents", async () => {
    expect(scenarios()).toHaveLength(560);
    const played = await playPrivacy(sampleOf(7));
    expect(played.filter(({ through }) => through.length > 0)).toEqual([]);
    expect(privacyTable(played).match(/\b1\/1\b/g)).toHaveLength(56);
  });
});
