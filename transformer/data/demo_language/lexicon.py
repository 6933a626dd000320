"""The words of the demo language, as tables."""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: English singular and plural, German with gender (m, f, n) and plural.

    `weak` marks the masculine nouns that end in -n or -en in all cases but the
    nominative singular (den Jungen, dem Studenten); `kind` is what it can be used for.
    """

    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    weak: bool
    kind: str


class Verb(NamedTuple):
    """A verb with its forms and what it goes with.

    English: base, third person, past, participle, and a particle ("up") or "". German:
    infinitive without prefix, third person singular, preterite, participle with
    prefix, auxiliary (hat, ist) and separable prefix or "". `subjects` and `objects`
    are kinds of nouns ("" for no object); `case` is that of the object.
    """

    base: str
    third: str
    past: str
    participle: str
    particle: str
    infinitive: str
    german_third: str
    preterite: str
    german_participle: str
    auxiliary: str
    prefix: str
    subjects: frozenset[str]
    objects: frozenset[str]
    case: str


class Adjective(NamedTuple):
    """An adjective; `stem` takes the endings (teuer, teur-e)."""

    english: str
    german: str
    stem: str
    kinds: frozenset[str]


class Adverb(NamedTuple):
    """An adverbial; `tenses` are the ones it fits, `manner` stands behind objects."""

    english: str
    german: str
    tenses: frozenset[str]
    manner: bool


# English[/plural] German[*] gender plural; "~" as a plural is the singular, and a
# plural that begins with "-" is an ending. "*" marks a weak noun.
_NOUNS = {
    "person": """
        man/men Mann m Männer, woman/women Frau f -en, child/children Kind n -er,
        boy Junge* m -n, girl Mädchen n ~, teacher Lehrer m ~, doctor Arzt m Ärzte,
        nurse Krankenschwester f -n, farmer Bauer* m -n, baker Bäcker m ~,
        butcher Metzger m ~, cook Koch m Köche, student Student* m -en,
        pupil Schüler m ~, soldier Soldat* m -en, king König m -e,
        queen Königin f -nen, prince Prinz* m -en, princess/princesses Prinzessin f
        -nen, neighbour Nachbar* m -n, friend Freund m -e, aunt Tante f -n,
        uncle Onkel m ~, grandmother Großmutter f Großmütter, grandfather Großvater m
        Großväter, brother Bruder m Brüder, sister Schwester f -n, mother Mutter f
        Mütter, father Vater m Väter, son Sohn m Söhne, daughter Tochter f Töchter,
        cousin Cousin m -s, guest Gast m Gäste, judge Richter m ~, lawyer Anwalt m
        Anwälte, singer Sänger m ~, dancer Tänzer m ~, painter Maler m ~,
        writer Schriftsteller m ~, policeman/policemen Polizist* m -en,
        fireman/firemen Feuerwehrmann m Feuerwehrmänner, pilot Pilot* m -en,
        tourist Tourist* m -en, customer Kunde* m -n, colleague Kollege* m -n,
        boss/bosses Chef m -s, driver Fahrer m ~, hunter Jäger m ~,
        fisherman/fishermen Fischer m ~, gardener Gärtner m ~, waiter Kellner m ~,
        hairdresser Friseur m -e, mayor Bürgermeister m ~, engineer Ingenieur m -e,
        actor Schauspieler m ~, witch/witches Hexe f -n, knight Ritter m ~,
        thief/thieves Dieb m -e, lady/ladies Dame f -n, hero/heroes Held* m -en,
        shepherd Hirte* m -n, sailor Matrose* m -n, clown Clown m -s, poet Dichter m ~,
        dentist Zahnarzt m Zahnärzte, athlete Sportler m ~, visitor Besucher m ~
    """,
    "animal": """
        animal Tier n -e, dog Hund m -e, cat Katze f -n, horse Pferd n -e,
        cow Kuh f Kühe, pig Schwein n -e, goat Ziege f -n, bird Vogel m Vögel,
        duck Ente f -n, goose/geese Gans f Gänse, hen Huhn n Hühner,
        mouse/mice Maus f Mäuse, rat Ratte f -n, rabbit Kaninchen n ~,
        hare Hase* m -n, fox/foxes Fuchs m Füchse, wolf/wolves Wolf m Wölfe,
        bear Bär* m -en, lion Löwe* m -n, tiger Tiger m ~, elephant Elefant* m -en,
        monkey Affe* m -n, donkey Esel m ~, camel Kamel n -e, giraffe Giraffe f -n,
        snake Schlange f -n, frog Frosch m Frösche, turtle Schildkröte f -n,
        crocodile Krokodil n -e, spider Spinne f -n, ant Ameise f -n,
        snail Schnecke f -n, hedgehog Igel m ~, squirrel Eichhörnchen n ~,
        owl Eule f -n, eagle Adler m ~, pigeon Taube f -n, penguin Pinguin m -e,
        beetle Käfer m ~, calf/calves Kalb n Kälber, lamb Lamm n Lämmer,
        puppy/puppies Welpe* m -n, kitten Kätzchen n ~, zebra Zebra n -s,
        kangaroo Känguru n -s, pony/ponies Pony n -s, rhino Nashorn n Nashörner
    """,
    "food": """
        apple Apfel m Äpfel, pear Birne f -n, cherry/cherries Kirsche f -n,
        banana Banane f -n, orange Orange f -n, lemon Zitrone f -n,
        strawberry/strawberries Erdbeere f -n, grape Traube f -n, plum Pflaume f -n,
        potato/potatoes Kartoffel f -n, carrot Karotte f -n, tomato/tomatoes Tomate f
        -n, onion Zwiebel f -n, cucumber Gurke f -n, mushroom Pilz m -e,
        egg Ei n -er, roll Brötchen n ~, cake Kuchen m ~, biscuit Keks m -e,
        sausage Wurst f Würste, pancake Pfannkuchen m ~, salad Salat m -e,
        soup Suppe f -n, pizza Pizza f Pizzen, nut Nuss f Nüsse, steak Steak n -s,
        pretzel Brezel f -n, melon Melone f -n, peach/peaches Pfirsich m -e,
        bean Bohne f -n
    """,
    "text": """
        book Buch n Bücher, letter Brief m -e, newspaper Zeitung f -en,
        magazine Zeitschrift f -en, novel Roman m -e, poem Gedicht n -e,
        report Bericht m -e, story/stories Geschichte f -n, text Text m -e,
        message Nachricht f -en, recipe Rezept n -e, contract Vertrag m Verträge,
        postcard Postkarte f -n, note Zettel m ~, list Liste f -n,
        article Artikel m ~, diary/diaries Tagebuch n Tagebücher,
        dictionary/dictionaries Wörterbuch n Wörterbücher
    """,
    "case": """
        door Tür f -en, window Fenster n ~, crate Kiste f -n, bag Tasche f -n,
        suitcase Koffer m ~, bottle Flasche f -n, gate Tor n -e,
        drawer Schublade f -n, cupboard Schrank m Schränke, envelope Umschlag m
        Umschläge, parcel Paket n -e, umbrella Regenschirm m -e, can Dose f -n,
        fridge Kühlschrank m Kühlschränke, backpack Rucksack m Rucksäcke,
        safe Tresor m -e
    """,
    "furniture": """
        table Tisch m -e, chair Stuhl m Stühle, bed Bett n -en, sofa Sofa n -s,
        bench/benches Bank f Bänke, carpet Teppich m -e, desk Schreibtisch m -e,
        shelf/shelves Regal n -e
    """,
    "thing": """
        ball Ball m Bälle, lamp Lampe f -n, mirror Spiegel m ~, clock Uhr f -en,
        picture Bild n -er, pillow Kissen n ~, blanket Decke f -n,
        knife/knives Messer n ~, fork Gabel f -n, spoon Löffel m ~, plate Teller m ~,
        cup Tasse f -n, glass/glasses Glas n Gläser, pot Topf m Töpfe,
        pan Pfanne f -n, key Schlüssel m ~, coin Münze f -n, ring Ring m -e,
        necklace Kette f -n, pencil Bleistift m -e, pen Kugelschreiber m ~,
        brush/brushes Bürste f -n, comb Kamm m Kämme, hammer Hammer m Hämmer,
        saw Säge f -n, nail Nagel m Nägel, ladder Leiter f -n, rope Seil n -e,
        bucket Eimer m ~, broom Besen m ~, candle Kerze f -n, flower Blume f -n,
        rose Rose f -n, doll Puppe f -n, stone Stein m -e, stick Stock m Stöcke,
        map Landkarte f -n, flag Fahne f -n, gift Geschenk n -e, vase Vase f -n,
        kite Drachen m ~, tent Zelt n -e, shovel Schaufel f -n, crown Krone f -n,
        sword Schwert n -er, mask Maske f -n, balloon Luftballon m -s,
        bell Glocke f -n, telescope Fernrohr n -e, basket Korb m Körbe
    """,
    "instrument": """
        drum Trommel f -n, guitar Gitarre f -n, piano Klavier n -e,
        violin Geige f -n, trumpet Trompete f -n, flute Flöte f -n, cello Cello n -s,
        harp Harfe f -n
    """,
    "device": """
        computer Computer m ~, camera Kamera f -s, radio Radio n -s,
        television Fernseher m ~, machine Maschine f -n, printer Drucker m ~,
        torch/torches Taschenlampe f -n
    """,
    "clothes": """
        coat Mantel m Mäntel, jacket Jacke f -n, dress/dresses Kleid n -er,
        shirt Hemd n -en, skirt Rock m Röcke, hat Hut m Hüte, cap Mütze f -n,
        shoe Schuh m -e, boot Stiefel m ~, glove Handschuh m -e, sock Socke f -n,
        sweater Pullover m ~, suit Anzug m Anzüge, belt Gürtel m ~,
        apron Schürze f -n, blouse Bluse f -n
    """,
    "vehicle": """
        car Auto n -s, bus/buses Bus m Busse, bicycle Fahrrad n Fahrräder,
        truck Lastwagen m ~, tractor Traktor m -en, motorcycle Motorrad n Motorräder,
        taxi Taxi n -s, boat Boot n -e, sledge Schlitten m ~, carriage Kutsche f -n,
        van Lieferwagen m ~, canoe Kanu n -s
    """,
    "ground": """
        street Straße f -n, bridge Brücke f -n, river Fluss m Flüsse,
        square Platz m Plätze, field Feld n -er, meadow Wiese f -n, park Park m -s,
        desert Wüste f -n, lake See m -n, valley Tal n Täler, path Weg m -e,
        forest Wald m Wälder, canal Kanal m Kanäle, crossing Kreuzung f
        -en, ditch/ditches Graben m Gräben, yard Hof m Höfe, swamp Sumpf m Sümpfe,
        stream Bach m Bäche, border Grenze f -n, glacier Gletscher m ~,
        track Gleis n -e, ice rink Eisbahn f -en, moor Moor n -e, bay Bucht f -en
    """,
    "building": """
        house Haus n Häuser, church/churches Kirche f -n, school Schule f -n,
        hospital Krankenhaus n Krankenhäuser, hotel Hotel n -s, castle Schloss n
        Schlösser, tower Turm m Türme, shop Laden m Läden, museum Museum n Museen,
        library/libraries Bibliothek f -en, restaurant Restaurant n -s,
        station Bahnhof m Bahnhöfe, airport Flughafen m Flughäfen,
        factory/factories Fabrik f -en, bakery/bakeries Bäckerei f -en,
        pharmacy/pharmacies Apotheke f -n, kitchen Küche f -n,
        bathroom Badezimmer n ~, bedroom Schlafzimmer n ~, cellar Keller m ~,
        garage Garage f -n, garden Garten m Gärten, cave Höhle f -n,
        barn Scheune f -n, stable Stall m Ställe, theatre Theater n ~,
        cinema Kino n -s, room Zimmer n ~, hall Saal m Säle, tunnel Tunnel m ~,
        village Dorf n Dörfer, city/cities Stadt f Städte, office Büro n -s,
        hut Hütte f -n, temple Tempel m ~, zoo Zoo m -s
    """,
}

_LIVING = "person animal"
_GOODS = "food text case furniture thing instrument device clothes vehicle"
_SMALL = "text thing instrument clothes"

# English base third past participle [particle]; German infinitive third preterite
# participle auxiliary [prefix]; subjects; objects; case of the object.
_VERBS = f"""
see sees saw seen; sehen sieht sah gesehen hat; person; {_LIVING} {_GOODS} building; acc
find finds found found; finden findet fand gefunden hat; person; {_GOODS}; acc
lose loses lost lost; verlieren verliert verlor verloren hat; person; {_SMALL}; acc
buy buys bought bought; kaufen kauft kaufte gekauft hat; person; {_GOODS}; acc
sell sells sold sold; verkaufen verkauft verkaufte verkauft hat; person; {_GOODS}; acc
need needs needed needed; brauchen braucht brauchte gebraucht hat; person; {_GOODS}; acc
know knows knew known; kennen kennt kannte gekannt hat; person; person; acc
love loves loved loved; lieben liebt liebte geliebt hat; person; {_LIVING}; acc
hear hears heard heard; hören hört hörte gehört hat; {_LIVING}; {_LIVING}; acc
carry carries carried carried; tragen trägt trug getragen hat; person; {_SMALL}; acc
bring brings brought brought; bringen bringt brachte gebracht hat; person; food; acc
take takes took taken; nehmen nimmt nahm genommen hat; person; {_SMALL} food; acc
hide hides hid hidden; verstecken versteckt versteckte versteckt hat; person; {_SMALL}; acc
forget forgets forgot forgotten; vergessen vergisst vergaß vergessen hat; person; {_SMALL}; acc
draw draws drew drawn; zeichnen zeichnet zeichnete gezeichnet hat; person; {_LIVING} building; acc
paint paints painted painted; malen malt malte gemalt hat; person; {_LIVING}; acc
wash washes washed washed; waschen wäscht wusch gewaschen hat; person; clothes vehicle; acc
clean cleans cleaned cleaned; putzen putzt putzte geputzt hat; person; vehicle instrument; acc
repair repairs repaired repaired; reparieren repariert reparierte repariert hat; person; vehicle device instrument; acc
build builds built built; bauen baut baute gebaut hat; person; furniture; acc
read reads read read; lesen liest las gelesen hat; person; text; acc
write writes wrote written; schreiben schreibt schrieb geschrieben hat; person; text; acc
translate translates translated translated; übersetzen übersetzt übersetzte übersetzt hat; person; text; acc
open opens opened opened; machen macht machte aufgemacht hat auf; person; case; acc
close closes closed closed; machen macht machte zugemacht hat zu; person; case; acc
eat eats ate eaten; essen isst aß gegessen hat; person; food; acc
cut cuts cut cut; schneiden schneidet schnitt geschnitten hat; person; food; acc
try tries tried tried; probieren probiert probierte probiert hat; person; food; acc
put puts put put on; ziehen zieht zog angezogen hat an; person; clothes; acc
take takes took taken off; ziehen zieht zog ausgezogen hat aus; person; clothes; acc
feed feeds fed fed; füttern füttert fütterte gefüttert hat; person; animal; acc
stroke strokes stroked stroked; streicheln streichelt streichelte gestreichelt hat; person; animal; acc
catch catches caught caught; fangen fängt fing gefangen hat; person; animal; acc
chase chases chased chased; jagen jagt jagte gejagt hat; animal; animal; acc
watch watches watched watched; beobachten beobachtet beobachtete beobachtet hat; {_LIVING}; {_LIVING}; acc
visit visits visited visited; besuchen besucht besuchte besucht hat; person; person building; acc
meet meets met met; treffen trifft traf getroffen hat; person; person; acc
invite invites invited invited; laden lädt lud eingeladen hat ein; person; person; acc
call calls called called; rufen ruft rief angerufen hat an; person; person; acc
fetch fetches fetched fetched; holen holt holte abgeholt hat ab; person; person; acc
wake wakes woke woken up; wecken weckt weckte aufgeweckt hat auf; person; {_LIVING}; acc
greet greets greeted greeted; grüßen grüßt grüßte gegrüßt hat; person; person; acc
hug hugs hugged hugged; umarmen umarmt umarmte umarmt hat; person; person; acc
ask asks asked asked; fragen fragt fragte gefragt hat; person; person; acc
thank thanks thanked thanked; danken dankt dankte gedankt hat; person; person; dat
help helps helped helped; helfen hilft half geholfen hat; person; {_LIVING}; dat
follow follows followed followed; folgen folgt folgte gefolgt ist; {_LIVING}; {_LIVING}; dat
trust trusts trusted trusted; vertrauen vertraut vertraute vertraut hat; person; person; dat
congratulate congratulates congratulated congratulated; gratulieren gratuliert gratulierte gratuliert hat; person; person; dat
cross crosses crossed crossed; überqueren überquert überquerte überquert hat; {_LIVING}; ground; acc
enter enters entered entered; betreten betritt betrat betreten hat; {_LIVING}; building; acc
leave leaves left left; verlassen verlässt verließ verlassen hat; {_LIVING}; building; acc
reach reaches reached reached; erreichen erreicht erreichte erreicht hat; {_LIVING}; ground building; acc
steal steals stole stolen; stehlen stiehlt stahl gestohlen hat; person; {_SMALL} vehicle; acc
throw throws threw thrown away; werfen wirft warf weggeworfen hat weg; person; {_SMALL}; acc
bring brings brought brought back; bringen bringt brachte zurückgebracht hat zurück; person; {_SMALL}; acc
lift lifts lifted lifted; heben hebt hob hochgehoben hat hoch; person; {_SMALL}; acc
switch switches switched switched on; machen macht machte angemacht hat an; person; device; acc
switch switches switched switched off; machen macht machte ausgemacht hat aus; person; device; acc
play plays played played; spielen spielt spielte gespielt hat; person; instrument; acc
hold holds held held; halten hält hielt gehalten hat; person; {_SMALL}; acc
push pushes pushed pushed; schieben schiebt schob geschoben hat; person; vehicle; acc
pull pulls pulled pulled; ziehen zieht zog gezogen hat; {_LIVING}; vehicle; acc
rent rents rented rented; mieten mietet mietete gemietet hat; person; vehicle; acc
park parks parked parked; parken parkt parkte geparkt hat; person; vehicle; acc
admire admires admired admired; bewundern bewundert bewunderte bewundert hat; person; {_LIVING} building; acc
describe describes described described; beschreiben beschreibt beschrieb beschrieben hat; person; {_LIVING} building; acc
sleep sleeps slept slept; schlafen schläft schlief geschlafen hat; {_LIVING}; ; acc
laugh laughs laughed laughed; lachen lacht lachte gelacht hat; person; ; acc
cry cries cried cried; weinen weint weinte geweint hat; person; ; acc
dance dances danced danced; tanzen tanzt tanzte getanzt hat; person; ; acc
sing sings sang sung; singen singt sang gesungen hat; person; ; acc
swim swims swam swum; schwimmen schwimmt schwamm geschwommen ist; {_LIVING}; ; acc
run runs ran run; rennen rennt rannte gerannt ist; {_LIVING}; ; acc
wait waits waited waited; warten wartet wartete gewartet hat; {_LIVING}; ; acc
work works worked worked; arbeiten arbeitet arbeitete gearbeitet hat; person; ; acc
smile smiles smiled smiled; lächeln lächelt lächelte gelächelt hat; person; ; acc
dream dreams dreamed dreamed; träumen träumt träumte geträumt hat; {_LIVING}; ; acc
cough coughs coughed coughed; husten hustet hustete gehustet hat; person; ; acc
get gets got got up; stehen steht stand aufgestanden ist auf; {_LIVING}; ; acc
fall falls fell fallen asleep; schlafen schläft schlief eingeschlafen ist ein; {_LIVING}; ; acc
come comes came come back; kommen kommt kam zurückgekommen ist zurück; {_LIVING}; ; acc
arrive arrives arrived arrived; kommen kommt kam angekommen ist an; person; ; acc
run runs ran run away; rennen rennt rannte weggerannt ist weg; {_LIVING}; ; acc
"""

# English German[/stem], by the kinds of nouns that they describe.
_ADJECTIVES = {
    "person": """happy glücklich, sad traurig, angry wütend, friendly freundlich,
        clever klug, brave mutig, rich reich, poor arm, famous berühmt, polite höflich,
        curious neugierig, proud stolz, lonely einsam, honest ehrlich,
        patient geduldig, careful vorsichtig, cheerful fröhlich, nice nett,
        funny lustig, strict streng, blind blind, deaf taub, impatient ungeduldig,
        talented begabt, modest bescheiden, generous großzügig, jealous eifersüchtig,
        reliable zuverlässig, grateful dankbar, serious ernst""",
    "person animal": """young jung, tired müde/müd, hungry hungrig, thirsty durstig,
        lazy faul, strong stark, weak schwach, sick krank, healthy gesund,
        nervous nervös, shy schüchtern, slow langsam, exhausted erschöpft,
        injured verletzt, frightened verängstigt, clumsy ungeschickt,
        thin dünn, fat dick, quiet still, sleepy schläfrig""",
    "animal": "wild wild, tame zahm, hairy haarig, cute niedlich, shaggy zottelig",
    "person animal text case furniture thing instrument device clothes vehicle "
    "building": "old alt, beautiful schön, strange seltsam",
    "case furniture thing instrument device clothes vehicle": """red rot, blue blau,
        green grün, yellow gelb, black schwarz, white weiß, grey grau, brown braun,
        heavy schwer, light leicht, cheap billig, expensive teuer/teur,
        ugly hässlich, simple einfach, valuable wertvoll, practical praktisch""",
    "animal food case furniture thing instrument device vehicle building": """
        big groß, small klein""",
    "text case furniture thing instrument device clothes vehicle building": """
        new neu, modern modern""",
    "text": "interesting interessant, boring langweilig, exciting spannend, "
    "important wichtig, secret geheim",
    "food": """fresh frisch, sweet süß, sour sauer/saur, warm warm, delicious lecker,
        salty salzig, bitter bitter, tasty schmackhaft""",
    "clothes": "colourful bunt, elegant elegant, striped gestreift",
    "furniture": "comfortable bequem, wobbly wackelig",
    "vehicle device": "fast schnell, broken kaputt, silver silbern",
    "ground": """wide breit, steep steil, slippery rutschig, muddy schlammig,
        deep tief, narrow schmal, icy vereist, long lang, flooded überschwemmt""",
    "ground building": """dangerous gefährlich, dark dunkel/dunkl, dirty schmutzig,
        loud laut, hot heiß, cold kalt, wet nass, crowded überfüllt, dusty staubig,
        empty leer, bright hell""",
    "building": "damp feucht, stuffy stickig, smoky verraucht",
}

_ADVERBS = """
today = heute : present; now = jetzt : present; yesterday = gestern : past;
last week = letzte Woche : past; last year = letztes Jahr : past;
last month = letzten Monat : past; last night = letzte Nacht : past;
every day = jeden Tag : present past; every week = jede Woche : present past;
in the evening = am Abend : present past; in the morning = am Morgen : present past;
at noon = am Mittag : present past; in the afternoon = am Nachmittag : present past;
on Monday = am Montag : present past; on Tuesday = am Dienstag : present past;
on Wednesday = am Mittwoch : present past; on Thursday = am Donnerstag : present past;
on Friday = am Freitag : present past; on Saturday = am Samstag : present past;
on Sunday = am Sonntag : present past; in summer = im Sommer : present past;
in winter = im Winter : present past; in spring = im Frühling : present past;
in autumn = im Herbst : present past; here = hier : present past;
often = oft : present past; soon = bald : present; at once = sofort : present past;
outside = draußen : present past; inside = drinnen : present past
"""

# Words of the grammar itself: articles, pronouns, conjunctions, modals, prepositions.
FUNCTION_WORDS = (
    "the a this it because that when although but and is was are were not very too "
    "can must want has in on under behind for with without into next"
).split()


def _plural_english(word: str) -> str:
    """The regular plural."""
    return f"{word}s"


def _parse_nouns() -> tuple[Noun, ...]:
    """Reads the table of nouns."""
    nouns = []
    for kind, table in _NOUNS.items():
        for entry in table.split(","):
            *english, german, gender, plural = entry.split()
            singular, _, english_plural = " ".join(english).partition("/")
            word = german.rstrip("*")
            if plural == "~":
                plural = word
            elif plural.startswith("-"):
                plural = word + plural[1:]
            nouns.append(
                Noun(
                    singular,
                    english_plural or _plural_english(singular),
                    word,
                    gender,
                    plural,
                    german.endswith("*"),
                    kind,
                )
            )
    return tuple(nouns)


def _parse_verbs() -> tuple[Verb, ...]:
    """Reads the table of verbs."""
    verbs = []
    for line in _VERBS.strip().splitlines():
        english, german, subjects, objects, case = (p.strip() for p in line.split(";"))
        # A particle or a prefix is there or is not.
        forms = [*(*english.split(), "")[:5], *(*german.split(), "")[:6]]
        kinds = frozenset(subjects.split()), frozenset(objects.split())
        verbs.append(Verb._make([*forms, *kinds, case]))
    return tuple(verbs)


def _parse_adjectives() -> tuple[Adjective, ...]:
    """Reads the table of adjectives."""
    adjectives = []
    for kinds, table in _ADJECTIVES.items():
        for entry in table.split(","):
            english, german = entry.split()
            word, _, stem = german.partition("/")
            adjectives.append(
                Adjective(english, word, stem or word, frozenset(kinds.split()))
            )
    return tuple(adjectives)


def _parse_adverbs() -> tuple[Adverb, ...]:
    """Reads the table of adverbials."""
    adverbs = []
    for entry in _ADVERBS.split(";"):
        words, tenses = entry.split(":")
        english, german = (side.strip() for side in words.split("="))
        adverbs.append(Adverb(english, german, frozenset(tenses.split()), False))
    return tuple(adverbs)


NOUNS = _parse_nouns()
VERBS = _parse_verbs()
ADJECTIVES = _parse_adjectives()
ADVERBS = _parse_adverbs()


def lexicon_size() -> int:
    """Number of lexemes."""
    tables = (NOUNS, VERBS, ADJECTIVES, ADVERBS, FUNCTION_WORDS)
    return sum(len(table) for table in tables)
