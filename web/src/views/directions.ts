/** Text of transcripts may hold characters that turn around, or hide, the text beside them. */

// C1 controls, and the controls of writing direction: embeddings, overrides, isolates. As they are, or escaped as JSON
// does; a backslash that is itself escaped begins no escape.
const DECEPTIVE = /\\\\|[\u0080-\u009f\u202a-\u202e\u2066-\u2069]|\\u(?:00[89][0-9a-f]|202[a-e]|206[6-9])/gi;

/** JSON in which each of these is seen as the sign for a character that cannot be shown. */
export function withVisibleControls(json: string): string {
  return json.replace(DECEPTIVE, (found) => (found === "\\\\" ? found : "\ufffd"));
}
