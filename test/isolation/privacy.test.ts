import { describe, expect, it } from "vitest";
import { playPrivacy, privacyTable, scenarios } from "./privacy.ts";

describe("what people have told a bot alone", () => {
  it("AT-9, AT-22, AT-23, AT-27: stays theirs in groups, although the model obeys members, results, files, pages and hand-overs", async () => {
    expect(scenarios()).toHaveLength(300);
    const played = await playPrivacy(scenarios(2));
    expect(played.filter(({ through }) => through.length > 0)).toEqual([]);
    expect(privacyTable(played).match(/\b2\/2\b/g)).toHaveLength(30);
  });
});
