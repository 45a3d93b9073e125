import { createTextExtractor } from "./text-extractor.ts";
import { expandingPdf } from "./pdf.fixture.ts";

// A process that has one reader idle and one busy, and says so. It is there to be killed.

const extractor = createTextExtractor({
  processes: 2,
  deadlineMs: 600_000,
  cpuMs: 600_000,
  memoryMb: 2_000,
});
const text = { bytes: Buffer.from("text"), name: "a.txt" };
await extractor.extract(text);
void extractor.extract({ bytes: expandingPdf(60), name: "a.pdf" });
await extractor.extract(text);
process.send?.("one idle, one busy");
