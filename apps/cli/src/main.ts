const interruptedCode = 130;

const [name, ...words] = process.argv.slice(2);
if (name === "chat") {
  const { runChat } = await import("./chat/chat.ts");
  await runChat(words, process.env);
}

// The reader of our output has left.
process.stdout.on("error", () => process.exit(interruptedCode));

// The conversation needs nothing of this, and starts at once.
const { runCommand } = await import("./commands.ts");
const code = await runCommand(process.argv.slice(2));
// What a pipe has not taken yet would be lost.
process.stdout.write("", () => process.exit(code));
