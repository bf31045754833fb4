/**
 * A number in a button that has a name of its own. The number is drawn, not text: the name stays the same whatever is
 * counted, and the tooltip of the button tells the number.
 */
export const Count = ({ text }: { text: string }) => (
  <span aria-hidden data-count={text} className="before:content-[attr(data-count)]" />
);
